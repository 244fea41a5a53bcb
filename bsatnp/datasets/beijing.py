"""Hourly air quality and weather at 12 sites in Beijing, March 2013 to February 2017.

The data are UCI dataset 501 (DOI 10.24432/C5RK5G, CC BY 4.0; Zhang et al., Proc. R. Soc. A 473, 2017). Download and
unpack them yourself; `load` reads the twelve `PRSA_Data_<station>_<from>-<to>.csv` files, also when gzipped.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: Latitude and longitude in degrees. UCI publishes none; a `stations.csv` beside the data files takes their place.
STATIONS = {
    "Aotizhongxin": (39.9821, 116.3966),
    "Changping": (40.2170, 116.2296),
    "Dingling": (40.2915, 116.2202),
    "Dongsi": (39.9289, 116.4174),
    "Guanyuan": (39.9295, 116.3392),
    "Gucheng": (39.9136, 116.1840),
    "Huairou": (40.3275, 116.6275),
    "Nongzhanguan": (39.9365, 116.4620),
    "Shunyi": (40.1350, 116.6636),
    "Tiantan": (39.8863, 116.4072),
    "Wanliu": (39.9611, 116.2878),
    "Wanshouxigong": (39.8784, 116.3621),
}

#: The two predicted columns, µg/m³.
TARGETS = ("PM2.5", "PM10")

#: The numeric columns of `x`; the one-hot wind direction follows them. °C, hPa, °C, mm, m/s.
COVARIATES = (
    *("year", "month", "day", "hour", "day of week", "is weekend"),
    *("temperature", "pressure", "dewpoint", "rain", "wind speed"),
)

_TIME = ("year", "month", "day", "hour")
_WEATHER = ("TEMP", "PRES", "DEWP", "RAIN", "WSPM")
_UNUSED = ("SO2", "NO2", "CO", "O3")  # a row that lacks one of them is incomplete all the same, as in the paper
_NUMERIC = (*_TIME, *TARGETS, *_WEATHER, *_UNUSED)
_COLUMNS = (*_NUMERIC, "wd", "station")
_MISSING = frozenset({"", "NA"})
_SOURCE = "get UCI dataset 501 from https://doi.org/10.24432/C5RK5G"


@dataclass(frozen=True, eq=False)
class Beijing:
    """The complete rows of all stations, by time and then by station.

    **Shapes.** `time`, `station` (an index into `stations`) and `wind` are `(row,)`, `weather` is `(row, 5)`, `f` is
    `(row, 2)`, `location` is `(station, 2)`.

    **Units.** `time` local (UTC+8); `weather` °C, hPa, °C, mm, m/s; `f` µg/m³; `location` degrees.
    """

    time: np.ndarray
    station: np.ndarray
    wind: np.ndarray
    weather: np.ndarray
    f: np.ndarray
    stations: tuple[str, ...]
    location: np.ndarray
    n_read: int

    def __len__(self) -> int:
        return len(self.time)

    @property
    def n_dropped(self) -> int:
        """How many rows that were read lack a value."""
        return self.n_read - len(self)

    @property
    def x(self) -> np.ndarray:
        """The numeric covariates, `(row, 11)`, as `COVARIATES` names them; Monday is day 0 of the week."""
        day = self.time.astype("datetime64[D]")
        month = self.time.astype("datetime64[M]")
        weekday = (day.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
        calendar = (
            self.time.astype("datetime64[Y]").astype(np.int64) + 1970,
            month.astype(np.int64) % 12 + 1,
            (day - month).astype(np.int64) + 1,
            (self.time - day) // np.timedelta64(1, "h"),
            weekday,
            weekday >= 5,
        )
        return np.column_stack((*calendar, self.weather)).astype(np.float64)

    @property
    def s(self) -> np.ndarray:
        """Latitude and longitude, `(row, 2)`, degrees."""
        return self.location[self.station]

    @property
    def t(self) -> np.ndarray:
        """Seconds since the first row, `(row, 1)`."""
        return ((self.time - self.time[0]) / np.timedelta64(1, "s"))[:, None]


def load(path: str | Path) -> Beijing:
    """Read the station files in the folder `path`, as UCI publishes them, plain or gzipped.

    Rows that lack any value are dropped and counted. Coordinates come from `stations.csv` (columns station, latitude,
    longitude) in the same folder, or from `STATIONS` where there is no such file.

    Raises:
        FileNotFoundError: no such folder, or a station without a file.
        ValueError: a file without the expected columns, that is cut, with a value that is no number or no date; a
            station, or an hour of one, twice.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"`path` must be the folder with the Beijing station files, got '{folder}'; {_SOURCE}.")
    files = sorted(p for p in folder.glob("PRSA_Data_*") if p.name.endswith((".csv", ".csv.gz")))
    sources: dict[str, Path] = {}
    tables = []
    for file in files:
        table, name = _read(file)
        if name in sources:
            raise ValueError(f"Each station must have one file, got '{sources[name].name}' and '{file.name}'.")
        sources[name] = file
        tables.append(table)
    absent = [name for name in STATIONS if name not in sources]
    if absent:
        raise FileNotFoundError(f"'{folder}' must hold a PRSA_Data_<station>_*.csv[.gz] for {absent}; {_SOURCE}.")
    stations = tuple(sources)
    location = _locations(folder / "stations.csv", stations)

    n_rows = [len(table["wd"]) for table in tables]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in (*_NUMERIC, "wd")}
    station = np.repeat(np.arange(len(stations)), n_rows)
    complete = ~np.isin(columns["wd"], list(_MISSING))
    for name in _NUMERIC:
        complete &= ~np.isnan(columns[name])
    if not complete.any():
        raise ValueError(f"'{folder}' must hold rows without missing values, got none in {sum(n_rows)} rows.")
    time = _times(*(columns[name][complete] for name in _TIME))
    station = station[complete]
    order = np.lexsort((station, time))
    twice = (np.diff(station[order]) == 0) & (np.diff(time[order]) == np.timedelta64(0, "s"))
    if twice.any():
        row = order[np.argmax(twice)]
        raise ValueError(
            f"Each station must have one row an hour, got two of '{stations[station[row]]}' at {time[row]}."
        )
    return Beijing(
        time=time[order],
        station=station[order],
        wind=columns["wd"][complete][order],
        weather=np.column_stack([columns[name][complete] for name in _WEATHER])[order],
        f=np.column_stack([columns[name][complete] for name in TARGETS])[order],
        stations=stations,
        location=location,
        n_read=sum(n_rows),
    )


def _times(year: np.ndarray, month: np.ndarray, day: np.ndarray, hour: np.ndarray) -> np.ndarray:
    """Seconds since 1970 from the columns of the files.

    Raises:
        ValueError: no day of the calendar, or no hour.
    """
    given = np.column_stack((year, month, day, hour))
    first = ((given[:, 0] - 1970) * 12 + given[:, 1] - 1).astype(np.int64).astype("datetime64[M]")
    date = first.astype("datetime64[D]") + (given[:, 2] - 1).astype(np.int64)
    good = (given == np.round(given)).all(1) & (1 <= month) & (month <= 12) & (0 <= hour) & (hour <= 23)
    good &= date.astype("datetime64[M]") == first
    if not good.all():
        raise ValueError(f"Columns {_TIME} must be a day and an hour, got {given[np.argmin(good)].tolist()}.")
    return date.astype("datetime64[s]") + hour.astype(np.int64) * np.timedelta64(3600, "s")


def _table(file: Path, wanted: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The wanted columns of a CSV file, as text."""
    opener = gzip.open if file.name.endswith(".gz") else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle)
            header = next(reader, [])
            rows = [row for row in reader if row]
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise ValueError(f"'{file.name}' cannot be read to its end: {error}; {_SOURCE}.") from error
    missing = [name for name in wanted if name not in header]
    if missing:
        raise ValueError(f"'{file.name}' must have the columns {missing}, got {header}; {_SOURCE}.")
    short = next((i for i, row in enumerate(rows) if len(row) != len(header)), None)
    if short is not None:
        raise ValueError(
            f"'{file.name}' must have {len(header)} fields in each row, got {len(rows[short])} in row {short + 1}."
        )
    columns = list(zip(*rows, strict=True)) or [()] * len(header)
    return {name: columns[header.index(name)] for name in wanted}


def _numbers(file: Path, name: str, texts: Iterable[str]) -> np.ndarray:
    try:
        numbers = np.array([math.nan if text in _MISSING else float(text) for text in texts])
        if np.isinf(numbers).any():
            raise ValueError("infinite")
        return numbers
    except ValueError as error:
        raise ValueError(f"Column '{name}' of '{file.name}' must hold numbers or NA: {error}.") from None


def _read(file: Path) -> tuple[dict[str, np.ndarray], str]:
    texts = _table(file, _COLUMNS)
    names = set(texts["station"])
    if len(names) != 1:
        raise ValueError(f"'{file.name}' must hold the rows of one station, got {sorted(names)}.")
    table = {name: _numbers(file, name, texts[name]) for name in _NUMERIC}
    table["wd"] = np.array(texts["wd"])
    return table, names.pop()


def _locations(file: Path, stations: Sequence[str]) -> np.ndarray:
    known = STATIONS
    if file.exists():
        texts = _table(file, ("station", "latitude", "longitude"))
        if len(set(texts["station"])) < len(texts["station"]):
            raise ValueError(f"'{file.name}' must give each station once, got {sorted(texts['station'])}.")
        degrees = (_numbers(file, name, texts[name]) for name in ("latitude", "longitude"))
        known = dict(zip(texts["station"], zip(*degrees, strict=True), strict=True))
    absent = [name for name in stations if name not in known]
    if absent:
        raise ValueError(f"'{file.name}' must give the latitude and longitude of {absent}, got {sorted(known)}.")
    location = np.array([known[name] for name in stations], np.float64)
    if not (np.abs(location) <= (90.0, 180.0)).all():  # NaN fails too
        raise ValueError(f"'{file.name}' must give latitudes in ±90 and longitudes in ±180 degrees for every station.")
    return location
