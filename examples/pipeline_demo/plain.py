"""Compute the expected totals by one plain pass with pandas."""

from typing import Any

import pandas as pd
from common.flights_file import file_of

from pipeline_demo.weather import UNKNOWN, VISIBILITY, WIND

MEASURES = ["flights", "cancelled", "delay"]
GRAIN = ["day", "carrier", "origin", "wind", "visibility"]

Totals = dict[str, tuple[int, ...]]  # by key: flights, cancelled, minutes of delay


def plain_pass(months: int) -> pd.DataFrame:
    """Return one row for each day, carrier, airport and kind of weather."""
    flights = pd.read_csv(file_of("flights.csv.zip"))
    flights = flights[flights.month <= months]
    observed = pd.read_csv(file_of("weather.csv"))
    observed = pd.DataFrame(
        {
            "origin": observed.origin,
            "time_hour": observed.time_hour,
            "wind": classes(observed.wind_speed, WIND),
            "visibility": classes(observed.visib, VISIBILITY),
        }
    )
    known = flights.merge(observed, on=["origin", "time_hour"], how="left", validate="many_to_one")
    for name in ("wind", "visibility"):
        known[name] = known[name].astype(object).fillna(UNKNOWN)
    new_york = pd.to_datetime(known.time_hour) - pd.Timedelta(hours=5)
    known["day"] = new_york.dt.strftime("%Y-%m-%d")
    known["cancelled"] = known.dep_time.isna().astype("int64")
    known["delay"] = known.dep_delay.fillna(0).astype("int64")
    known["flights"] = 1
    return known.groupby(GRAIN, as_index=False)[MEASURES].sum()


def classes(measured: pd.Series, bounds: dict[str, float]) -> Any:
    """Return the class of each measurement; none for a missing one."""
    return pd.cut(measured, [-1.0, *bounds.values()], right=False, labels=list(bounds))


def totals_of(rows: pd.DataFrame) -> Totals:
    """Return the totals in Redis that rows of the Parquet directory imply."""
    month = rows.day.str[:7]
    keys = {
        "carrier": rows.carrier + "/" + month,
        "origin": rows.origin + "/" + month,
        "wind": rows.wind,
        "visibility": rows.visibility,
    }
    found: Totals = {}
    for dimension, key in keys.items():
        for name, sums in rows.groupby(key)[MEASURES].sum().iterrows():
            found[f"{dimension}/{name}"] = tuple(map(int, sums))
    return found


def folded(rows: pd.DataFrame) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Return the sums of the rows of all batches, by the columns of `GRAIN`."""
    if rows.empty:
        return {}
    sums = rows.groupby(GRAIN)[MEASURES].sum()
    return dict(zip(sums.index, sums.itertuples(index=False, name=None), strict=True))
