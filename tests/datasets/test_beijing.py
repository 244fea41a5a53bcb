"""Reading the Beijing files: the committed sample, the real data where they are, and small files with faults."""

import csv
import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from bsatnp.datasets import beijing

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "examples" / "data" / "beijing_sample"

HEADER = (
    '"No","year","month","day","hour","PM2.5","PM10","SO2","NO2","CO","O3",'
    '"TEMP","PRES","DEWP","RAIN","wd","WSPM","station"'
)
ROW = '1,2016,2,29,{hour},{pm},20,3,17,300,89,-0.5,1024.5,-21.4,0,{wd},5.7,"{station}"'


def write_folder(folder: Path, *, skip: str = "", header: str = HEADER, rows=None, end: str = "\r\n") -> Path:
    """A small file for each station: two complete rows, in reverse order of time."""
    for name in beijing.STATIONS:
        if name == skip:
            continue
        lines = rows or [
            ROW.format(hour=5, pm=11, wd='"NW"', station=name),
            ROW.format(hour=4, pm=7, wd='"E"', station=name),
        ]
        text = end.join([header, *(line.replace("STATION", name) for line in lines)]) + end
        (folder / f"PRSA_Data_{name}_20160229-20160229.csv").write_bytes(text.encode())
    return folder


def oracle(folder: Path) -> list[tuple]:
    """The complete rows of a folder, row by row with the csv module, in the order of time and station."""
    rows = []
    for file in folder.glob("PRSA_Data_*.csv.gz"):
        with gzip.open(file, "rt", newline="") as handle:
            for row in csv.DictReader(handle):
                if "NA" not in row.values():
                    stamp = "{year}-{month:0>2}-{day:0>2}T{hour:0>2}".format(**row)
                    rows.append(
                        (stamp, row["station"], row["wd"], float(row["PM2.5"]), float(row["PM10"]), float(row["WSPM"]))
                    )
    return sorted(rows)


def test_sample_equals_a_row_by_row_reading():
    data = beijing.load(SAMPLE)
    rows = oracle(SAMPLE)
    assert (data.n_read, len(data), data.n_dropped) == (12 * 1344, 15533, 595)
    assert [data.stations[i] for i in data.station] == [row[1] for row in rows]
    np.testing.assert_array_equal(data.time, np.array([row[0] for row in rows], "datetime64[h]"))
    assert data.wind.tolist() == [row[2] for row in rows]
    np.testing.assert_array_equal(data.f, [row[3:5] for row in rows])
    np.testing.assert_array_equal(data.weather[:, 4], [row[5] for row in rows])
    assert (np.diff(data.time) >= np.timedelta64(0)).all()
    assert sum(file.stat().st_size for file in SAMPLE.iterdir()) < 400_000


def test_calendar_and_units():
    data = beijing.load(SAMPLE)
    dates = [time.item() for time in data.time]
    expected = [(d.year, d.month, d.day, d.hour, d.weekday(), d.weekday() >= 5) for d in dates]
    np.testing.assert_array_equal(data.x[:, :6], expected)
    assert data.x.shape == (len(data), len(beijing.COVARIATES))
    assert data.t[0, 0] == 0 and data.t[-1, 0] == (dates[-1] - dates[0]).total_seconds()
    dongsi = data.s[data.station == data.stations.index("Dongsi")]
    np.testing.assert_array_equal(np.unique(dongsi, axis=0), [[39.9289, 116.4174]])


def test_real_data(real):
    data = real
    assert data.n_read == 12 * 35064 == 420_768
    assert len(data) == 382_168
    assert data.time[0] == np.datetime64("2013-03-01T00") and data.time[-1] == np.datetime64("2017-02-28T23")
    assert (data.f >= 0).all() and data.f.max() == 999
    published = {name: tuple(data.location[i]) for i, name in enumerate(data.stations)}
    assert published == beijing.STATIONS


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_plain_files_missing_values_and_leap_day(tmp_path, end):
    rows = [
        ROW.format(hour=h, pm=p, wd=w, station="STATION")
        for h, p, w in ((9, 5, '"N"'), (3, "NA", '"N"'), (8, 4, "NA"), (7, "", '"N"'), (6, 1, '"S"'))
    ]
    data = beijing.load(write_folder(tmp_path, rows=rows, end=end))
    assert (data.n_read, data.n_dropped) == (60, 36)
    assert np.unique(data.time).tolist() == [
        t.item() for t in np.array(["2016-02-29T06", "2016-02-29T09"], "datetime64[s]")
    ]
    assert data.wind[0] == "S" and data.f[0, 0] == 1 and data.wind[-1] == "N" and data.f[-1, 0] == 5
    np.testing.assert_array_equal(data.x[0, :6], [2016, 2, 29, 6, 0, 0])  # a Monday
    assert tuple(data.location[0]) == beijing.STATIONS["Aotizhongxin"]


def test_stations_file_takes_the_place_of_the_table(tmp_path):
    lines = ["station,latitude,longitude", *(f"{name},{40 + i},{116 - i}" for i, name in enumerate(beijing.STATIONS))]
    write_folder(tmp_path).joinpath("stations.csv").write_text("\n".join(lines))
    data = beijing.load(tmp_path)
    np.testing.assert_array_equal(data.location, [(40 + i, 116 - i) for i in range(12)])


def test_no_folder():
    with pytest.raises(FileNotFoundError, match=r"`path` must be the folder .* got 'nowhere'; get UCI dataset 501"):
        beijing.load("nowhere")


def test_no_station_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"PRSA_Data_<station>.* \['Huairou'\]; get UCI dataset 501"):
        beijing.load(write_folder(tmp_path, skip="Huairou"))


def test_missing_column(tmp_path):
    with pytest.raises(ValueError, match=r"'PRSA_Data_Aoti.*' must have the columns \['PM10', 'wd'\], got \['No'"):
        beijing.load(write_folder(tmp_path, header=HEADER.replace("PM10", "PM11").replace('"wd"', '"wind"')))


def test_no_number(tmp_path):
    rows = [ROW.format(hour=1, pm="high", wd='"N"', station="STATION")]
    with pytest.raises(ValueError, match=r"Column 'PM2.5' of 'PRSA_Data_Aoti.*' must hold numbers or NA: .*'high'"):
        beijing.load(write_folder(tmp_path, rows=rows))


@pytest.mark.parametrize(
    ("old", "new"),
    [("2016,2,29", "2016,13,1"), ("2016,2,29", "2015,2,29"), ("2016,2,29", "2016.5,2,1"), (",1,3,", ",24,3,")],
)
def test_no_date(tmp_path, old, new):
    rows = [ROW.format(hour=1, pm=3, wd='"N"', station="STATION").replace(old, new)]
    with pytest.raises(ValueError, match=r"must be a day and an hour, got \[201"):
        beijing.load(write_folder(tmp_path, rows=rows))


def test_infinite(tmp_path):
    rows = [ROW.format(hour=1, pm="inf", wd='"N"', station="STATION")]
    with pytest.raises(ValueError, match=r"Column 'PM2.5' of 'PRSA_Data_Aoti.*' must hold numbers or NA: infinite"):
        beijing.load(write_folder(tmp_path, rows=rows))


def test_an_hour_twice_is_named(tmp_path):
    row = ROW.format(hour=1, pm=7, wd='"N"', station="STATION")
    with pytest.raises(ValueError, match=r"one row an hour, got two of 'Aotizhongxin' at 2016-02-29T01:00:00"):
        beijing.load(write_folder(tmp_path, rows=[row, row]))


@pytest.mark.parametrize("content", [gzip.compress(b"a,b\n" * 5000, mtime=0)[:20], b"no gzip"])
def test_a_compressed_file_that_is_cut_is_named(tmp_path, content):
    write_folder(tmp_path, skip="Dongsi").joinpath("PRSA_Data_Dongsi_x.csv.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"'PRSA_Data_Dongsi_x.csv.gz' cannot be read to its end"):
        beijing.load(tmp_path)


def test_cut_row(tmp_path):
    rows = [ROW.format(hour=1, pm=3, wd='"N"', station="STATION"), "2,2016,2"]
    with pytest.raises(ValueError, match=r"must have 18 fields in each row, got 3 in row 2"):
        beijing.load(write_folder(tmp_path, rows=rows))


def test_one_station_twice(tmp_path):
    folder = write_folder(tmp_path)
    shutil.copy(folder / "PRSA_Data_Dongsi_20160229-20160229.csv", folder / "PRSA_Data_Dongsi_copy.csv")
    with pytest.raises(
        ValueError, match=r"Each station must have one file, got 'PRSA_Data_Dongsi_2016.*'PRSA_Data_Dongsi_copy"
    ):
        beijing.load(folder)


def test_only_incomplete_rows(tmp_path):
    rows = [ROW.format(hour=1, pm="NA", wd='"N"', station="STATION")]
    with pytest.raises(ValueError, match="must hold rows without missing values, got none in 12 rows"):
        beijing.load(write_folder(tmp_path, rows=rows))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("station,latitude,longitude\nDongsi,39,116\nDongsi,40,116\n", "'stations.csv' must give each station once"),
        ("station,latitude\nDongsi,39.9\n", r"'stations.csv' must have the columns \['longitude'\]"),
        (
            "station,latitude,longitude\nDongsi,39.9,116.4\n",
            r"must give the latitude and longitude of \['Aoti.*got \['Dongsi'\]",
        ),
        ("station,latitude,longitude\n" + "".join(f"{n},116.4,39.9\n" for n in beijing.STATIONS), "latitudes in ±90"),
    ],
)
def test_faulty_stations_file(tmp_path, text, message):
    write_folder(tmp_path).joinpath("stations.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        beijing.load(tmp_path)
