"""The HTML report of a navigation review: the track, how far to believe it, and what differs from the autopilot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..navigation.review import CONSISTENT, STATES, ChannelInnovations, NavigationReview
from . import navigation_figures as figures
from .drawing import draw, plain_text
from .page import Level, Notice, Page, Section, Table
from .wording import clean, in_words, number, percent, shorten, versions

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:  # runtime shape checks evaluate annotations, and matplotlib is optional
    Figure = Any

NAMES = 40
"""Characters of a name from the log in a table."""


def navigation_page(review: NavigationReview) -> str:
    """The whole HTML file of a review.

    Args:
        review: the review.

    Returns:
        One self-contained page.
    """
    return page_of(review).html()


def page_of(review: NavigationReview) -> Page:
    """The page of a review before it is written as text.

    Args:
        review: the review.

    Returns:
        The page.
    """
    shown: NavigationReview = clean(review)
    builders: tuple[Callable[[NavigationReview], Section | None], ...] = (
        _track, _motion, _consistent, _hidden, _autopilot, _truth, _states, _noises, _method,
    )  # fmt: skip
    sections = tuple(section for build in builders if (section := build(shown)) is not None)
    return Page(
        title=f"Navigation of {shorten(shown.name, 80)}",
        subtitle=f"{shown.format}, {_span(shown)}; IMU: {shorten(shown.imu, NAMES)}",
        sections=sections,
        notices=(Notice(_level(shown), shown.summary[:1].upper() + shown.summary[1:]),),
        facts=_facts(shown),
        data=review.as_dict(),
    )


def pictures_of(review: NavigationReview) -> dict[str, Figure]:
    """The figures of the motion, by name, for :func:`fwnkf.report.plots.save_all`.

    Args:
        review: the review.

    Returns:
        The track from above, the height and the attitude.
    """
    shown: NavigationReview = clean(review)
    drawn = {"plan": figures.plan(shown), "height": figures.height(shown), "attitude": figures.attitude(shown)}
    return {name: plain_text(figure) for name, figure in drawn.items()}


def _level(review: NavigationReview) -> Level:
    """A filter that states too little is a warning; one that states too much is not."""
    if review.consistent:
        return "good"
    return "warning" if any(row.nis > 1 and not row.consistent for row in review.sensors) else "info"


def _span(review: NavigationReview) -> str:
    return f"{number(review.begin, 's')} to {number(review.end, 's')}"


def _facts(review: NavigationReview) -> dict[str, str]:
    facts = {}
    if review.held_out is not None:
        facts["error at hidden fixes"] = number(review.held_out.error, "m")
        if review.held_out.usual is not None:
            facts[f"with {review.autopilot} defaults"] = number(review.held_out.usual, "m")
    facts["delay of GNSS"] = _delay(review)
    facts["outliers"] = str(sum(row.outliers for row in review.sensors))
    facts |= {f"to the autopilot, {row.name}": f"{number(row.rms, row.unit)} RMS" for row in review.differences[:2]}
    return facts


def _delay(review: NavigationReview) -> str:
    error = "" if review.delay_error is None else f" ± {1e3 * review.delay_error:.0f}"
    return f"{1e3 * review.delay:.0f}{error} ms"


# ---- the questions --------------------------------------------------------------------------------------------------


def _track(review: NavigationReview) -> Section:
    drawings = (
        draw(figures.plan(review), "plan", "The track from above."),
        draw(figures.height(review), "height", f"Height above the first fix.{_rest(review)}"),
    )
    north, east, down = (float(value) for value in review.smoothed.mean[-1, :3])
    words = (("north", "south", north), ("east", "west", east), ("below", "above", down))
    parts = [f"{number(abs(value), 'm')} {plus if value >= 0 else minus}" for plus, minus, value in words]
    answer = f"From {_span(review)}. It ends {parts[0]}, {parts[1]} and {parts[2]} the first fix."
    return Section("Where did it go?", answer, drawings)


def _rest(review: NavigationReview) -> str:
    return " Dotted: noises were fitted to what is before, and are judged by what is after." if review.fitted else ""


def _motion(review: NavigationReview) -> Section:
    drawings = (
        draw(figures.velocity(review), "velocity", "Velocity with the 95 % interval of the filter."),
        draw(figures.attitude(review), "attitude", "Attitude with the 95 % interval of the filter."),
    )
    late = review.filtered.time >= review.rest
    angle = 1.96 * review.filtered.angles()[1][late].mean(0)
    speed = 1.96 * float(review.filtered.part("velocity")[1][late].mean(0).max())
    answer = (
        f"After {number(review.rest, 's')} the filter states, with 95 % confidence, the heading within "
        f"± {number(float(angle[2]), '°')}, roll and pitch within ± {number(float(angle[:2].max()), '°')}, and "
        f"velocity within ± {number(speed, 'm/s')}."
    )
    return Section("How fast, and at which attitude?", answer, drawings)


def _consistent(review: NavigationReview) -> Section:
    groups: dict[str, list[ChannelInnovations]] = {}
    for row in review.innovations:
        groups.setdefault(row.sensor, []).append(row)
    drawings = tuple(
        draw(
            figures.innovations(group),
            f"innovations{place}",
            f"{_titled(sensor)}: innovations in standard deviations. Dashed: ±2, within which 95 % should lie.",
        )
        for place, (sensor, group) in enumerate(groups.items())
    )
    sensors = Table(
        ("sensor", "readings", "NIS", f"NIS, {review.autopilot} noises", "outliers"),
        tuple((_spoken(row.name), row.readings, row.nis, row.usual_nis, row.outliers) for row in review.sensors),
        f"Sensors after {number(review.rest, 's')}; outliers of the whole log",
    )
    channels = Table(
        ("channel", "NIS", "95 % interval", "autocorrelation", "in the log", "NIS in the log"),
        tuple(
            (
                f"{_spoken(row.sensor)} {row.channel}",
                row.consistency.mean,
                f"{number(row.consistency.low)} to {number(row.consistency.high)}",
                row.consistency.correlation,
                None if row.logged is None else shorten(row.logged.name, NAMES),
                None if row.logged is None else row.logged.mean,
            )
            for row in review.innovations
        ),
        "Channels",
        fold=True,
    )
    off = [row for row in review.sensors if not row.consistent]
    if off:
        answer = " ".join(
            f"{_titled(row.name)}: innovations are {'larger' if row.nis > 1 else 'smaller'} than stated "
            f"(NIS {number(row.nis)})."
            for row in off
        )
    else:
        answer = "Yes: the innovations of every sensor are about as large as the filter states."
    logged = [row.logged.mean for row in review.innovations if row.logged is not None]
    if logged:
        answer += f" Those that the autopilot logged have a NIS of {number(min(logged))} to {number(max(logged))}" + (
            ": it trusts its sensors less than they deserve." if max(logged) < CONSISTENT[0] else "."
        )
    notes = (
        "NIS is the squared innovation (measurement minus prediction) divided by its variance in the filter, and 1 for "
        "a consistent filter. An outlier is beyond five standard deviations, and left out.",
    )
    return Section("Are the innovations as large as stated?", answer, drawings, (sensors, channels), notes)


def _hidden(review: NavigationReview) -> Section | None:
    found = review.held_out
    if found is None:
        return None
    table = Table(
        ("from (s)", "to (s)", "fixes", "error (m)", f"with {review.autopilot} noises (m)"),
        tuple((row.begin, row.end, row.fixes, row.error, row.usual) for row in found.windows),
        "Windows without GNSS, root mean square of the error",
    )
    answer = f"Within {number(found.error, 'm')} RMS"
    if found.usual is not None:
        answer += f", and within {number(found.usual, 'm')} with the default noises of {review.autopilot}"
        if found.gain is not None and found.gain_low is not None:
            sure = "significant" if found.gain_low > 0 else "not significant"
            answer += (
                f". The mean squared error changes by {percent(-found.gain)} (95 % interval "
                f"{percent(-(found.gain_high or 0.0))} to {percent(-found.gain_low)}), which is {sure}"
            )
    notes = (
        "The filter runs without the GNSS of a window and is compared with the fixes in it. The errors contain those "
        "of the fixes themselves.",
    )
    return Section("How well does it predict GNSS that it has not seen?", answer + ".", (), (table,), notes)


def _autopilot(review: NavigationReview) -> Section | None:
    rows = review.differences
    if not rows:
        return None
    caption = (
        "Distance between this filter and the autopilot's estimate, in the scale of what is after the dotted line."
    )
    drawing = draw(figures.differences(rows, review.rest), "differences", caption)
    table = Table(
        ("difference", "unit", "RMS", "largest", "at (s)"),
        tuple((row.name, row.unit, row.rms, row.largest, row.when) for row in rows),
        f"After {number(review.rest, 's')}",
    )
    worst = in_words([f"{number(row.largest, row.unit)} {row.name} at {number(row.when, 's')}" for row in rows])
    return Section("Where does it differ from the autopilot?", f"By at most {worst}.", (drawing,), (table,))


def _truth(review: NavigationReview) -> Section | None:
    if not review.errors:
        return None
    table = Table(
        ("part", "unit", "filtered", "smoothed", "autopilot", "NEES"),
        tuple((row.name, row.unit, row.filtered, row.smoothed, row.autopilot, row.nees) for row in review.errors),
        f"Root mean square errors after {number(review.rest, 's')}",
    )
    words = in_words([f"{number(row.filtered, row.unit)} in {row.name}" for row in review.errors])
    notes = ("NEES is the squared error divided by its variance in the filter, and 1 where the covariance is right.",)
    return Section("How far is it from the truth?", f"{words} (RMS).", (), (table,), notes)


def _states(review: NavigationReview) -> Section:
    known = [name for name, *_ in review.filtered.parts if name in STATES]
    drawings = tuple(
        draw(
            figures.state(review.filtered, name, STATES[name][1], STATES[name][2], review.rest),
            f"state{place}",
            f"{STATES[name][0].capitalize()} with its 95 % interval.",
        )
        for place, name in enumerate(known)
    )
    table = Table(
        ("state", "unit", "value", "standard deviation"),
        tuple((row.name, row.unit, row.value, row.std) for row in review.states),
        "At the end",
    )
    answer = "Biases and what else the filter estimates besides the motion; values at the end are in the table."
    return Section("Which biases did it find?", answer, drawings, (table,))


def _noises(review: NavigationReview) -> Section:
    table = Table(
        ("noise", "unit", "value", f"default of {review.autopilot}"),
        tuple((_spoken(row.name), row.unit, row.value, row.usual) for row in review.noises),
        "Noises of the filter",
        fold=not review.fitted,
    )
    if review.fitted:
        answer = (
            f"Fitted to {number(review.begin, 's')} to {number(review.rest, 's')}. GNSS is {_delay(review)} late "
            f"(default of {review.autopilot}: {1e3 * review.usual_delay:.0f} ms)."
        )
    else:
        answer = f"Nothing was fitted: noises and delay ({_delay(review)}) are the defaults of {review.autopilot}."
    return Section("Which noises and delay?", answer, (), (table,))


def _method(review: NavigationReview) -> Section:
    answer = f"Command: `{review.command}`. " if review.command else ""
    return Section("How was it measured?", answer + versions(), (), (), review.notes)


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("gnss", "GNSS")


def _titled(name: str) -> str:
    text = _spoken(name)
    return text[:1].upper() + text[1:]
