"""Households as configurations, blocks as counts over them.

What it is: a *configuration* is one combination of levels of the attributes (size 3, one child, in property
1, two bedrooms, ...). A block is a vector of integer counts over a table of configurations, so that every
published statistic is a row ``a @ counts`` and two people's worth of orderings never count twice. A predicate
picks configurations; any predicate may be the harm, the occupancy limit is one instance.

What it is not: a list of household records in an order (nothing published depends on an order), and no
constraints (:mod:`adversary.reconstruction.constraints`).

Held to account by tests/reconstruction/test_households.py. Sources: Steed, Qing and Wu, "Quantifying Privacy
Risks of Public Statistics to Residents of Subsidized Housing", arXiv 2407.04776, section 3 and footnote 7
(attributes and the occupancy limit). The lists of categories are ours, since the paper's appendices are not
public here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adversary.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import xarray as xr
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "CENSUS_ATTRIBUTES",
    "OVER_LIMIT",
    "RACES_8",
    "RACES_14",
    "SUBSIDISED",
    "Attribute",
    "Configurations",
    "Predicate",
    "from_xarray",
    "household_configurations",
    "to_xarray",
]

_GROUPS = ("white", "black", "aian", "asian", "nhopi", "other", "two_or_more")
RACES_8: tuple[str, ...] = (*(f"{race}_nonhispanic" for race in _GROUPS), "hispanic")
"""Race and ethnicity of the householder, Hispanic people in one group."""
RACES_14: tuple[str, ...] = tuple(
    f"{race}_{part}" for race in _GROUPS for part in ("nonhispanic", "hispanic")
)
"""Race by Hispanic origin of the householder."""
CENSUS_ATTRIBUTES: tuple[str, ...] = ("size", "children", "elderly", "race")
"""Attributes that census tables and microdata samples see; subsidy and bedrooms are not among them."""


class Attribute(NamedTuple):
    """One attribute of a household.

    Attributes
    ----------
    name
        Name of the attribute.
    levels
        Labels of its levels.
    values
        A number for every level where levels can be added up (persons, children); otherwise empty.
    """

    name: str
    levels: tuple[str, ...]
    values: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Configurations:
    """A table of household configurations.

    Parameters
    ----------
    attributes
        The attributes, in the order of the columns of ``codes``.
    codes
        Index of the level of every attribute in every configuration, int64, shape (K, number of attributes);
        no row twice.

    Raises
    ------
    ModelError
        A code outside its levels, or a configuration that occurs twice.

    Examples
    --------
    >>> child = Attribute("child", ("no", "yes"))
    >>> table = Configurations.product(Attribute("size", ("1", "2"), (1, 2)), child)
    >>> table
    <Configurations: 4 of size (2), child (2)>
    >>> table.mask({"child": "yes"}).tolist()
    [False, True, False, True]
    >>> table.number("size").tolist()
    [1, 1, 2, 2]
    """

    attributes: tuple[Attribute, ...]
    codes: NDArray[np.int64]

    def __post_init__(self) -> None:
        codes = np.array(self.codes, dtype=np.int64)
        if codes.ndim != 2 or codes.shape[1] != len(self.attributes):
            msg = f"codes of shape {codes.shape} for {len(self.attributes)} attributes: give one column each"
            raise ModelError(msg, codes.shape)
        for j, attribute in enumerate(self.attributes):
            bad = (codes[:, j] < 0) | (codes[:, j] >= len(attribute.levels))
            if bad.any():
                code = int(codes[bad, j][0])
                msg = f"{attribute.name} has no level {code}: codes run from 0 to {len(attribute.levels) - 1}"
                raise ModelError(msg, code)
        codes.setflags(write=False)
        object.__setattr__(self, "codes", codes)
        if len(np.unique(self._keys)) != len(codes):
            order = np.sort(self._keys)
            twice = int(np.flatnonzero(self._keys == order[:-1][order[1:] == order[:-1]][0])[0])
            msg = f"configuration {self.label(twice)} occurs twice: keep each once"
            raise ModelError(msg, twice)

    @classmethod
    def product(cls, *attributes: Attribute) -> Configurations:
        """Return all combinations of the levels of ``attributes``, the last one fastest."""
        codes = list(product(*(range(len(a.levels)) for a in attributes)))
        return cls(attributes, np.array(codes, dtype=np.int64).reshape(len(codes), len(attributes)))

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        parts = ", ".join(f"{a.name} ({len(a.levels)})" for a in self.attributes)
        return f"<Configurations: {len(self)} of {parts}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return tuple(a.name for a in self.attributes)

    @cached_property
    def _radix(self) -> NDArray[np.int64]:
        sizes = [len(a.levels) for a in self.attributes]
        return np.array([int(np.prod(sizes[j + 1 :], dtype=np.int64)) for j in range(len(sizes))], np.int64)

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        return self.codes @ self._radix

    def column(self, name: str) -> int:
        """Return the position of the attribute ``name``."""
        if name not in self.names:
            msg = f"no attribute {name!r}: there are {', '.join(self.names)}"
            raise ModelError(msg, name)
        return self.names.index(name)

    def attribute(self, name: str) -> Attribute:
        """Return an attribute by its name."""
        return self.attributes[self.column(name)]

    def labels(self, name: str) -> NDArray[np.str_]:
        """Return the label of the attribute ``name`` for every configuration, shape (K,)."""
        return np.array(self.attribute(name).levels, dtype=np.str_)[self.codes[:, self.column(name)]]

    def number(self, name: str) -> NDArray[np.int64]:
        """Return the number that a level of ``name`` stands for (persons, children), shape (K,)."""
        values = self.attribute(name).values
        if not values:
            msg = f"levels of {name} are no numbers: only attributes with values can be added up"
            raise ModelError(msg, name)
        return np.array(values, dtype=np.int64)[self.codes[:, self.column(name)]]

    def label(self, k: int) -> str:
        """Return configuration ``k`` (from 0) in words."""
        pairs = zip(self.attributes, self.codes[k].tolist(), strict=True)
        return ", ".join(f"{a.name}={a.levels[code]}" for a, code in pairs)

    def mask(self, predicate: Predicate | Mapping[str, Any] | ArrayLike | None) -> NDArray[np.bool_]:
        """Return which configurations a predicate picks, shape (K,).

        Parameters
        ----------
        predicate
            A `Predicate`; or a mapping from attribute to one label or several (all must hold); or a ready
            mask of shape (K,); or None for all configurations.
        """
        if predicate is None:
            return np.ones(len(self), dtype=bool)
        if isinstance(predicate, Predicate):
            return np.asarray(predicate.rule(self), dtype=bool)
        if hasattr(predicate, "items"):
            chosen = np.ones(len(self), dtype=bool)
            for name, wanted in predicate.items():
                chosen &= self._of_levels(name, [wanted] if isinstance(wanted, str) else list(wanted))
            return chosen
        ready = np.asarray(predicate)
        if ready.dtype != bool or ready.shape != (len(self),):
            msg = (
                f"a mask of shape {ready.shape}, {ready.dtype} for {len(self)} configurations: one bool each"
            )
            raise ModelError(msg, ready.shape)
        return ready

    def _of_levels(self, name: str, wanted: Iterable[str]) -> NDArray[np.bool_]:
        levels = self.attribute(name).levels
        codes = []
        for level in wanted:
            if level not in levels:
                msg = f"{name} has no level {level!r}: there are {', '.join(levels)}"
                raise ModelError(msg, level)
            codes.append(levels.index(level))
        return np.isin(self.codes[:, self.column(name)], codes)

    def select(self, predicate: Predicate | Mapping[str, Any] | ArrayLike) -> Configurations:
        """Return the table of the configurations that ``predicate`` picks only."""
        return Configurations(self.attributes, self.codes[self.mask(predicate)])

    def find(self, records: ArrayLike) -> NDArray[np.int64]:
        """Return the configuration of each record, -1 where the table has none.

        Parameters
        ----------
        records
            Codes of the levels, shape (n, number of attributes).
        """
        rows = np.asarray(records, dtype=np.int64).reshape(-1, len(self.attributes))
        order = np.argsort(self._keys, kind="stable")
        sizes = np.array([len(a.levels) for a in self.attributes])
        inside = ((rows >= 0) & (rows < sizes)).all(axis=1)
        keys = rows @ self._radix
        at = np.searchsorted(self._keys[order], keys)
        at = np.minimum(at, max(len(self) - 1, 0))
        if len(self) == 0:
            return np.full(len(rows), -1, dtype=np.int64)
        found = inside & (self._keys[order][at] == keys)
        return np.where(found, order[at], -1).astype(np.int64)

    def histogram(self, records: ArrayLike) -> NDArray[np.int64]:
        """Count records (codes of levels, shape (n, attributes)) over the configurations, shape (K,).

        Raises
        ------
        ModelError
            For a record whose configuration the table lacks.
        """
        at = self.find(records)
        if (at < 0).any():
            record = np.asarray(records).reshape(-1, len(self.attributes))[at < 0][0].tolist()
            msg = f"record {record} has no configuration in the table: add it to the support"
            raise ModelError(msg, record)
        return np.bincount(at, minlength=len(self)).astype(np.int64)

    def records(self, counts: ArrayLike) -> NDArray[np.int64]:
        """Write a block of ``counts`` out, one row of codes a household, in the order of the table."""
        return np.repeat(self.codes, np.asarray(counts, dtype=np.int64), axis=0)

    def cells(self, names: Sequence[str] | None = None) -> tuple[NDArray[np.int64], Configurations]:
        """Merge configurations that agree in some attributes.

        Parameters
        ----------
        names
            Attributes to keep; None for all.

        Returns
        -------
        tuple
            The cell of every configuration, int64, shape (K,); and the table of the cells that occur.

        Examples
        --------
        >>> table = Configurations.product(Attribute("size", ("1", "2")), Attribute("child", ("no", "yes")))
        >>> cell, cells = table.cells(["child"])
        >>> cell.tolist(), cells.labels("child").tolist()
        ([0, 1, 0, 1], ['no', 'yes'])
        """
        chosen = self.names if names is None else tuple(names)
        columns = [self.column(name) for name in chosen]
        kept, cell = np.unique(self.codes[:, columns], axis=0, return_inverse=True)
        return cell.ravel().astype(np.int64), Configurations(tuple(self.attribute(n) for n in chosen), kept)

    def carry(self, values: ArrayLike, over: Configurations) -> NDArray[Any]:
        """Carry values of a coarser table (its census part, say) over to this one; 0 where it has none.

        Parameters
        ----------
        values
            One value for each configuration of ``over``.
        over
            A table whose attributes are among this table's, with the same levels.
        """
        columns = [self.column(name) for name in over.names]
        at = over.find(self.codes[:, columns])
        values = np.asarray(values)
        return np.where(at >= 0, values[at], np.zeros((), dtype=values.dtype))


@dataclass(frozen=True)
class Predicate:
    """A named rule that picks configurations: the harm, a match, a subset.

    Parameters
    ----------
    name
        What is said of a household that it picks.
    rule
        From a table of configurations to a mask of shape (K,).
    """

    name: str
    rule: Callable[[Configurations], NDArray[np.bool_]]


def _subsidised(table: Configurations) -> NDArray[np.bool_]:
    return np.asarray(table.labels("property") != "none")


def _over_limit(table: Configurations) -> NDArray[np.bool_]:
    size, bedrooms = table.number("size"), table.labels("bedrooms")
    crowded = ((bedrooms == "0-1") & (size > 2)) | ((bedrooms == "2") & (size > 4))
    return np.asarray(_subsidised(table) & crowded)


SUBSIDISED = Predicate("lives in a subsidised unit", _subsidised)
OVER_LIMIT = Predicate("violates the occupancy limit", _over_limit)
"""Two people a bedroom: at most 2 in 0-1 bedrooms, 4 in 2; 3+ has no limit (arXiv 2407.04776, footnote 7)."""


def household_configurations(
    properties: int = 1, races: Sequence[str] = RACES_8, max_size: int = 7, census_only: bool = False
) -> Configurations:
    """Return all household configurations with fewer children than persons.

    Parameters
    ----------
    properties
        How many subsidised properties the block may hold; ``property`` then has levels none, 1, 2, ...; a
        household has bedrooms NA exactly if it is in none of them.
    races
        Levels of the householder's race and ethnicity.
    max_size
        Largest household (persons). Published sizes end with 7+; sizes above 7 are kept apart here so that
        persons add up.
    census_only
        Leave out property and bedrooms: what census tables and microdata samples see.

    Returns
    -------
    Configurations
        Attributes property, bedrooms, size, children, elderly, race; or the last four.

    Examples
    --------
    >>> household_configurations(census_only=True)
    <Configurations: 448 of size (7), children (7), elderly (2), race (8)>
    >>> len(household_configurations())
    1792
    """
    if not (properties >= 0 and max_size >= 1):
        msg = f"{properties} properties and a largest household of {max_size}: give 0 or more, and 1 or more"
        raise ModelError(msg, (properties, max_size))
    census = (
        Attribute("size", tuple(str(z) for z in range(1, max_size + 1)), tuple(range(1, max_size + 1))),
        Attribute("children", tuple(str(c) for c in range(max_size)), tuple(range(max_size))),
        Attribute("elderly", ("no", "yes")),
        Attribute("race", tuple(races)),
    )
    if census_only:
        table = Configurations.product(*census)
    else:
        homes = Attribute("property", ("none", *(str(j) for j in range(1, properties + 1))))
        table = Configurations.product(homes, Attribute("bedrooms", ("NA", "0-1", "2", "3+")), *census)
    keep = table.number("children") < table.number("size")
    if not census_only:
        keep &= (table.labels("property") == "none") == (table.labels("bedrooms") == "NA")
    return table.select(keep)


def to_xarray(configurations: Configurations, counts: ArrayLike, name: str = "households") -> xr.DataArray:
    """Label counts over configurations.

    Parameters
    ----------
    configurations
        The table.
    counts
        Shape (K,), or (..., K) with blocks or draws in front.
    name
        Name of the array.

    Returns
    -------
    xarray.DataArray
        Last dimension ``configuration``, with one coordinate an attribute along it.

    Examples
    --------
    >>> table = Configurations.product(Attribute("size", ("1", "2"), (1, 2)), Attribute("child", ("no", "yes")))
    >>> to_xarray(table, [2, 0, 1, 0]).coords["size"].values.tolist()
    ['1', '1', '2', '2']
    """
    import xarray as xr

    values = np.asarray(counts)
    if values.shape[-1:] != (len(configurations),):
        msg = f"counts of shape {values.shape} for {len(configurations)} configurations: they go last"
        raise ModelError(msg, values.shape)
    front = {1: (), 2: ("block",)}.get(values.ndim, tuple(f"axis_{i}" for i in range(values.ndim - 1)))
    coords = {n: ("configuration", configurations.labels(n)) for n in configurations.names}
    described = json.dumps([a._asdict() for a in configurations.attributes])
    return xr.DataArray(
        values, dims=(*front, "configuration"), coords=coords, name=name, attrs={"attributes": described}
    )


def from_xarray(array: xr.DataArray) -> tuple[Configurations, NDArray[np.int64]]:
    """Read counts over configurations from a labelled array.

    Parameters
    ----------
    array
        What `to_xarray` returns; or a table with one dimension an attribute, labelled by coordinates (labels
        that are whole numbers become values that can be added up).

    Returns
    -------
    tuple
        The table and the counts, int64, shape (K,) or (..., K).

    Raises
    ------
    ModelError
        If counts are negative or not whole, or a dimension has no labels.

    Examples
    --------
    >>> import xarray as xr
    >>> array = xr.DataArray([[2, 0], [1, 0]], coords={"size": [1, 2], "child": ["no", "yes"]})
    >>> table, counts = from_xarray(array)
    >>> table, counts.tolist()
    (<Configurations: 4 of size (2), child (2)>, [2, 0, 1, 0])
    """
    values = np.asarray(array.values)
    whole = np.issubdtype(values.dtype, np.integer) or bool(
        np.all(np.isfinite(values)) and np.all(values == np.floor(values))
    )
    if not whole or (values < 0).any():
        msg = "counts of households must be whole and not negative: mend the array"
        raise ModelError(msg, array.name)
    counts = values.astype(np.int64)
    if "configuration" in array.dims:
        attributes = tuple(
            Attribute(a["name"], tuple(a["levels"]), tuple(a["values"]))
            for a in json.loads(array.attrs["attributes"])
        )
        columns = []
        for a in attributes:
            place = {level: code for code, level in enumerate(a.levels)}
            columns.append([place[str(label)] for label in array.coords[a.name].values])
        codes = np.array(columns, dtype=np.int64).T.reshape(-1, len(attributes))
        return Configurations(attributes, codes), np.moveaxis(counts, array.get_axis_num("configuration"), -1)
    attributes = tuple(_described(array, str(dim)) for dim in array.dims)
    return Configurations.product(*attributes), counts.ravel()


def _described(array: xr.DataArray, dim: str) -> Attribute:
    if dim not in array.coords:
        msg = f"dimension {dim} has no labels: give a coordinate of that name"
        raise ModelError(msg, dim)
    labels = array.coords[dim].values
    values = tuple(int(v) for v in labels) if np.issubdtype(labels.dtype, np.integer) else ()
    return Attribute(dim, tuple(str(label) for label in labels), values)
