"""A run that is killed goes on and ends with the same bytes; ``killing.py`` does it twenty times over a million targets."""

import importlib.util
import os
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("killing", Path(__file__).with_name("killing.py"))
killing = importlib.util.module_from_spec(spec)
spec.loader.exec_module(killing)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here"),
]


def test_a_batch_killed_three_times_ends_with_the_same_bytes(tmp_path):
    killing.campaign(killing.batch_job(tmp_path, 30_000, chunk=500), tmp_path, kills=3)


def test_a_batch_of_two_workers_killed_twice_ends_with_the_same_bytes(tmp_path):
    command = killing.batch_job(tmp_path, 30_000, chunk=500)
    killing.campaign([*command[:-1], "--workers", "2", "--out"], tmp_path, kills=2)


def test_a_study_killed_three_times_ends_with_the_same_bytes(tmp_path):
    killing.campaign(killing.study_job(tmp_path, 480), tmp_path, kills=3)
