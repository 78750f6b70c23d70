"""Rates by name: files, those that ship with the package, and assumed ones."""

from pathlib import Path

from mosaicdd.planning.assumed import GPUS, assumed_rates
from mosaicdd.planning.rates import Rates, read_rates

_SHIPPED = Path(__file__).parent / "measured"


def rates_of_name(name: str, dtype: str) -> Rates:
    """Return rates for a precision.

    Parameters
    ----------
    name
        ``"default"``: measured on one core of the machine that the file names; a name in `GPUS`;
        or a file that ``mosaicdd bench`` wrote.

    Raises
    ------
    FileNotFoundError
        If it is neither a name nor a file.
    ValueError
        If the file is no rates file, or was measured in another precision.
    """
    if name in GPUS:
        return assumed_rates(name, dtype)
    if name == "default":
        return read_rates(_SHIPPED / f"cpu-{dtype}.json")
    if not Path(name).is_file():
        raise FileNotFoundError(
            f"{name}: neither a file nor one of default, {', '.join(GPUS)}; "
            "mosaicdd bench -o FILE measures this machine"
        )
    rates = read_rates(name)
    if rates.dtype != dtype:
        raise ValueError(
            f"{name} was measured in {rates.dtype}, --dtype is {dtype}; "
            f"measure with mosaicdd bench --dtype {dtype}"
        )
    return rates
