"""The page of the explorer, a marimo app: sliders above, numbers and a figure below.

Nothing is computed here (:mod:`adversary.explore.numbers`). Served by ``adversary explore``.
"""

import marimo

app = marimo.App(width="medium", app_title="adversary: explore")


@app.cell
def _():
    import marimo as mo

    from adversary.errors import AdversaryError
    from adversary.explore.numbers import DELTA, explored
    from adversary.plots import plot_by_count

    return AdversaryError, DELTA, explored, mo, plot_by_count


@app.cell
def _(mo):
    mo.md("""
    # What would one noisy release tell an adversary?

    The adversary knows everyone else in the block's cell and asks whether the target is there. Move a slider: the answer is
    exact (closed form), for *this* release only.
    """)


@app.cell
def _(mo):
    rhos = [round(m * 10.0**e, 6) for e in range(-3, 1) for m in (1, 1.5, 2, 3, 5, 7)] + [10.0]
    priors = [0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
    levels = mo.ui.dropdown(
        ["block", "block and block group"], value="block", label="levels whose counts she sees"
    )
    convention = mo.ui.dropdown(
        ["unbounded", "bounded"], value="unbounded", label="neighbours that rho is for"
    )
    rho = mo.ui.slider(steps=rhos, value=0.1, label="rho of the block's count", show_value=True)
    prior = mo.ui.slider(
        steps=priors, value=0.5, label="prior probability that the target is there", show_value=True
    )
    block = mo.ui.slider(-20, 40, value=2, label="noisy count of the block", show_value=True)
    known = mo.ui.slider(0, 20, value=0, label="others in it whom the adversary knows", show_value=True)
    rho_group = mo.ui.slider(steps=rhos, value=0.2, label="rho of the group's count", show_value=True)
    group = mo.ui.slider(-20, 100, value=1, label="noisy count of the block group", show_value=True)
    rest = mo.ui.slider(-50, 100, value=-1, label="noisy sum of its other blocks", show_value=True)
    others = mo.ui.slider(1, 60, value=27, label="number of its other blocks", show_value=True)
    return block, convention, group, known, levels, others, prior, rest, rho, rho_group


@app.cell
def _(block, convention, group, known, levels, mo, others, prior, rest, rho, rho_group):
    two = levels.value != "block"
    left = mo.vstack([levels, convention, rho, prior, block, known])
    right = [rho_group, group, rest, others] if two else []
    mo.hstack([left, mo.vstack(right)], justify="start", gap=3)
    return (two,)


@app.cell
def _(
    AdversaryError,
    DELTA,
    block,
    convention,
    explored,
    group,
    known,
    mo,
    others,
    plot_by_count,
    prior,
    rest,
    rho,
    rho_group,
    two,
):
    try:
        found = explored(
            rho=rho.value,
            prior=prior.value,
            block=block.value,
            known=known.value,
            group=(rho_group.value, group.value, rest.value, others.value) if two else None,
            convention=convention.value,
        )
    except AdversaryError as error:
        shown = mo.callout(str(error), kind="danger")
    else:
        noise = ", ".join(
            f"{name} {s:.4g}" for name, s in zip(("block", "block group"), found.sigma2, strict=False)
        )
        table = mo.md(f"""
    | | |
    | --- | --- |
    | probability that the target is there | {found.prior:.6g} before, **{found.posterior:.6g}** after |
    | risk R' = posterior / prior | **{found.risk:.6g}** |
    | decision | **{found.decision}** |
    | ceiling of the average R' by the guarantee | {found.ceiling:.6g} |
    | budget of these counts | S = {found.information:.6g}; epsilon {found.epsilon:.4g} at delta {DELTA:g} |
    | sigma^2 ({convention.value} neighbours) | {noise} |
    """)
        note = mo.md(
            "The ceiling bounds R' *averaged* over releases with the target present; one release can exceed it."
        )
        picture = plot_by_count(found, block.value).figure
        shown = mo.vstack([mo.hstack([table, picture], widths=[1, 1], align="start", gap=2), note])
    shown


if __name__ == "__main__":
    app.run()
