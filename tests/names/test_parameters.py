# SPDX-License-Identifier: MIT
"""Parameters in C++ names."""

from __future__ import annotations

import subprocess

import pytest

from ftpatch.names.parameters import parameters_in, unsigned

NAMES = {
    "_Z4walki": ("walk", 1),
    "_ZNK6shapes3BoxIlE5twiceEPKlm": ("shapes::Box<long>::twice", 2),
    "_ZN1A1hERKSt4pairIiS_IlcEE": ("A::h", 1),
    "_ZN3foo3barC1ERKS0_": ("foo::bar::bar", 1),
    "_ZZ4mainENKUlvE_clEv": ("main::{lambda()#1}::operator()", 0),
    "_Z1fPFiiPvEz": ("f", 1),
    "_Z1gRA3_iSt3mapIilE": ("g", 2),
    "_ZN1SltERKS_": ("S::operator<", 1),
    "_ZN1SrsEi": ("S::operator>>", 1),
    "_ZN1SclEic": ("S::operator()", 2),
    "_ZL5count": ("count", None),
    "main": ("main", None),
}


@pytest.mark.parametrize("symbol", NAMES)
def test_parameters_of_names(symbol: str) -> None:
    command = ["c++filt", symbol]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert (unsigned(name), parameters_in(name)) == NAMES[symbol]
