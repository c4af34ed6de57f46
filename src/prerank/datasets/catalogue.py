"""The records of the paper's eighteen datasets."""

from prerank.datasets.description import Dataset, Origin

__all__ = ["DATASETS"]


def _benchmark(path: str, sha256: str, size: int) -> Origin:
    """A file of the benchmark whose preprocessing and splits the paper follows."""
    return Origin(
        repository="Vekteur/multi-output-conformal-regression",
        commit="3f8638c67fcfadd1878dec4854be7a593965b441",
        path=f"data/{path}",
        sha256=sha256,
        size=size,
    )


_MULAN = "GPL, as part of the Mulan project, says the benchmark that carries it"
_MEPS_LICENCE = (
    "public use files of the US Agency for Healthcare Research and Quality, under a data use "
    "agreement that every user has to accept"
)
_NO_COPY = "no copy was at hand, so nothing can be compared"


def _meps(panel: int, n_rows: int) -> Dataset:
    """One panel of the Medical Expenditure Panel Survey."""
    return Dataset(
        name=f"meps_{panel}",
        n_rows=n_rows,
        n_inputs=None,
        n_targets=2,
        targets=("K6SUM42", "UTILIZATION_reg"),
        rule="targets by name, all other columns are inputs, in the order of their names",
        licence=_MEPS_LICENCE,
        bring=(
            f"panel {panel} as one CSV: download the household files of the survey from AHRQ, "
            "accepting their agreement, and merge them with the scripts of get_meps_data in "
            "yromano/cqr; the result has the columns K6SUM42 and UTILIZATION_reg"
        ),
        deviation=_NO_COPY,
        aliases=(f"meps{panel}",),
        sorted_inputs=True,
    )


# In the order of the paper's tables.
DATASETS: tuple[Dataset, ...] = (
    Dataset(
        name="households",
        n_rows=7207,
        n_inputs=14,
        n_targets=4,
        targets=("inc", "food", "house", "utili"),
        rule="targets by name; the household's number, the row number and inc.a are left out",
        licence=(
            "public domain (US Bureau of Labor Statistics, Consumer Expenditure Survey); the code "
            "that prepared it is GPL-3.0 and its licence file lies beside the CSV"
        ),
        origin=_benchmark(
            "camehl/households.csv",
            "8ee416404862dc199c7247ba207dd60c444eb37e9d4dfe76ea55319fa4607359",
            805_441,
        ),
        ignored=("", "newid", "inc.a"),
        sorted_inputs=True,
        content="cb72197c92b42ab31e80a513753a0122aae9957f835a2c3bf7f484c2cda2b2a2",
    ),
    Dataset(
        name="air",
        n_rows=10_000,
        n_inputs=15,
        n_targets=6,
        targets=("max_PM2.5", "max_NO2", "max_O3", "max_PM10", "max_CO", "max_SO2"),
        rule="the last 6 columns are the targets",
        licence="public domain (US Environmental Protection Agency); prepared by GPL-3.0 code",
        origin=_benchmark(
            "cevid/air.csv",
            "63d90546808e08166159bac726f967d9584fd97513b47576f70bf599832c0012",
            770_449,
        ),
        content="ad0b63686c1739609b3d7e43be13b7deebcc3a823f63bdb5c995bfed3cfccfba",
    ),
    Dataset(
        name="births1",
        n_rows=10_000,
        n_inputs=23,
        n_targets=2,
        targets=("pregnancy_duration", "birthweight"),
        rule="the last 2 columns are the targets",
        licence="public domain (US Centers for Disease Control); prepared by GPL-3.0 code",
        origin=_benchmark(
            "cevid/births1.csv",
            "cb2b922b4c92e4dfa72afe96f1cd6302322687446b16d6f2a569dafffd350174",
            611_182,
        ),
        content="555d20f2fc0b38ca86f95fa8c4e928bdc57885087edb11983158c46203eade58",
    ),
    Dataset(
        name="births2",
        n_rows=10_000,
        n_inputs=24,
        n_targets=4,
        targets=("birthweight", "apgar_5min", "abnormal_conditions", "congenital_anomalies"),
        rule="the last 4 columns are the targets; three of them are discrete",
        licence="public domain (US Centers for Disease Control); prepared by GPL-3.0 code",
        origin=_benchmark(
            "cevid/births2.csv",
            "3d03e84eebe821e2c85ad1afd679b7816adb90a6fb49f02ddb1bf588490cbdb8",
            671_444,
        ),
        content="908771e9454dbb64600c630310c8784ae8ae882e6e178d1c361b8e83cd3c97ad",
    ),
    Dataset(
        name="wage",
        n_rows=10_000,
        n_inputs=78,
        n_targets=2,
        targets=("log_wage", "male"),
        rule="the last 2 columns are the targets; the second is 0 or 1",
        licence="public domain (US Census, American Community Survey); prepared by GPL-3.0 code",
        origin=_benchmark(
            "cevid/wage.csv",
            "b41b26c21b83d7f166cf01b51c10645c09e2bd0e4fa1e232424d1f6fa5f30262",
            1_770_271,
        ),
        content="027f9c8015152ca7a838431bd1b9afd38c30cdcb893aed3cdd45f93a698594c6",
    ),
    Dataset(
        name="scm20d",
        n_rows=8966,
        n_inputs=60,
        n_targets=16,
        targets=("LBL", *(f"MTLp{number}A" for number in range(2, 17))),
        rule="the last 16 columns are the targets; interestRate, with 7 values, is removed",
        licence=_MULAN,
        origin=Origin(
            "Zhendong-Wang/Probabilistic-Conformal-Prediction",
            "4421dc3745cb0ea567ab2bba34d15ab1f3aece14",
            "data/scm20d.arff",
        ),
        bring="scm20d.arff of Mulan's multi-target regression data",
        deviation=(
            "from a copy of Mulan's file that was written anew with other bytes; three files "
            "of the same copy have the same values as their originals, so this one should too"
        ),
        content="4c3ceb412c35517c3307739561fec61779da476dddb5b431fcb6dc4a67cd923a",
    ),
    Dataset(
        name="scm1d",
        n_rows=9803,
        n_inputs=279,
        n_targets=16,
        targets=("LBL", *(f"MTLp{number}" for number in range(2, 17))),
        rule="the last 16 columns are the targets; interestRate is removed from 280 inputs",
        licence=_MULAN,
        bring="scm1d.arff (9,803 rows, 296 columns) of Mulan's multi-target regression data",
        deviation=_NO_COPY,
    ),
    Dataset(
        name="wq",
        n_rows=1060,
        n_inputs=16,
        n_targets=14,
        targets=(
            *("25400", "29600", "30400", "33400", "17300", "19400", "34500"),
            *("38100", "49700", "50390", "55800", "57500", "59300", "37880"),
        ),
        rule="the last 14 columns are the targets, all of them discrete",
        licence=_MULAN,
        origin=_benchmark(
            "mulan/wq.arff",
            "4a0906b4a51bf52c986790ddaf261ba51faa3da9cffe823badabd88d38d252fe",
            316_219,
        ),
        content="99bf8dbd5f1edd290d4e39a2bbf18ca07d77f85a81ca65110f242966cdc309b3",
    ),
    Dataset(
        name="scpf",
        n_rows=1137,
        n_inputs=8,
        n_targets=3,
        targets=("num_views", "num_votes", "num_comments"),
        rule="the last 3 columns are the targets; 15 of 23 inputs are mostly missing and removed",
        licence=_MULAN,
        origin=_benchmark(
            "mulan/scpf.arff",
            "f7d3c7b134c0e5ddff56a7900371cb44328f9b7f550203c4a556929203ea81e9",
            90_524,
        ),
        content="dfd4edccc2175185b8395b07f633d2a7493d37576f59aeeb20857bd8ec250a44",
    ),
    _meps(21, 15_656),
    _meps(19, 15_785),
    _meps(20, 17_541),
    Dataset(
        name="house",
        n_rows=21_613,
        n_inputs=17,
        n_targets=2,
        targets=("lat", "price"),
        rule="targets by name; date (text) and floors (few values) are removed, id stays an input",
        licence="CC BY 4.0 (house sales in King County), says the benchmark that carries it",
        origin=_benchmark(
            "feldman/house.csv",
            "d0875baa0251b21d4bdc9d2ae940a4fe0bb6009824f23dd0e2a5b2bf04557b7e",
            2_515_206,
        ),
        sorted_inputs=True,
        content="0860b3c36050ab1de3e494944430bf1fb5331bf40cfffd6ff0fbfd40cc0777bf",
    ),
    Dataset(
        name="bio",
        n_rows=45_730,
        n_inputs=8,
        n_targets=2,
        targets=("F7", "F9"),
        rule="targets by name; RMSD, elsewhere the target, is an input",
        licence="CC BY 4.0 (UCI, tertiary structure of proteins), says the benchmark",
        origin=_benchmark(
            "feldman/bio.csv",
            "4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
            3_528_710,
        ),
        sorted_inputs=True,
        content="48e0881ac8c1d4155126036fb7e6f04fe5eb1cd67d98a08ae0b9f952fdeb5ed9",
    ),
    Dataset(
        name="blog_data",
        n_rows=52_397,
        n_inputs=269,
        n_targets=2,
        targets=("60", "280"),
        rule="columns 60 and 280, counted from 0, of a file without header; 10 inputs are removed",
        licence="CC BY 4.0 (UCI BlogFeedback), says the benchmark; the carrier is MIT",
        origin=Origin(
            "bbengfort/hadoop-fundamentals",
            "31c97551b50d618a681c1bfb7e3282fc8236f78c",
            "data/BlogFeedback.zip",
        ),
        bring="blogData_train.csv, unpacked from BlogFeedback.zip of the UCI repository",
        aliases=("blogdata",),
        header=False,
        content="ed6198409e65e03784bcdfa00e6ac5c8f35c93a7145692890a7f33382fbeb07f",
    ),
    Dataset(
        name="calcofi",
        n_rows=814_247,
        n_inputs=1,
        n_targets=2,
        targets=("T_degC", "Salnty"),
        rule="temperature and salinity from depth; rows where one of them is missing are left out",
        licence="CC BY 4.0 (data usage policy of CalCOFI), says the benchmark",
        bring=(
            "CalCOFI's bottle table up to November 2016 as a CSV with the columns Depthm, T_degC "
            "and Salnty"
        ),
        deviation=(
            "a reconstruction of 798,341 rows (98 %) from CalCOFI/capstone@d43fac0 (1970 to 2016) "
            "and CalCOFI/calcofi4r@af6eeab (1949 to 1969, 2.8 % of these are means of bottles at "
            "one place); that depth is the input, and the order of the targets, are inferred"
        ),
        inputs=("Depthm",),
        content="0759d6654462f71896cd0ac16651005a28d86a96ab4b29bdf2cbee6bd40c57d4",
    ),
    Dataset(
        name="ansur2",
        n_rows=1986,
        n_inputs=1,
        n_targets=2,
        targets=("footlength", "tibialheight"),
        rule="the last 2 columns are the targets; rows with missing values are left out",
        licence="public domain (ANSUR II, by way of the Open Design Lab), says the benchmark",
        origin=_benchmark(
            "del_barrio/ansur2.csv",
            "b76b24c41db056d6218e0616033276f018f89351a324089f16458aa6ad5fc53d",
            25_850,
        ),
        content="fe398d43f6e2e77ed9dd5cad705a4521cca101851f82951e9e24f912dfa48aa2",
    ),
    Dataset(
        name="taxi",
        n_rows=61_286,
        n_inputs=4,
        n_targets=2,
        targets=("dropoff_loc_lat", "dropoff_loc_lon"),
        rule="the last 2 columns are the targets; the two days of the week are removed",
        licence="public domain (New York City's taxi commission); carrier and preparation are MIT",
        origin=Origin(
            "Earth-Intelligence-Lab/CP4GenerativeModel",
            "57e9ba5a232352ba45963092437eb668fb151dc7",
            "data/taxi_data.csv",
        ),
        bring="taxi_data.csv, a sample of New York's yellow-cab trips of January 2016",
        deviation=(
            "another sample, of 10,000 trips, of the same table: the benchmark's file could not "
            "be had; the order of the inputs is inferred; the source calls longitude "
            "'lat' and latitude 'lon'"
        ),
        content="e47e67481b43f4c09eb275b0597603364eb215badf85f64a97da248d6cddebd2",
    ),
)
"""The eighteen of the paper."""
