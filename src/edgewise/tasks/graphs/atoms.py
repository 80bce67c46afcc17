"""What is known of the atoms and bonds of RDKit's molecules, as numbers in a fixed order; it needs nothing else."""

from contextlib import suppress
from functools import lru_cache
from typing import Any

COMPARISONS = 100_000  # of neighbours, for the names of the atoms in rings: 0.3 s at most on one slow core
ELEMENTS = ("C", "N", "O", "F", "P", "S", "Cl", "Br", "I")
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
HYBRIDS = ("SP", "SP2", "SP3")
RINGS = (3, 4, 5, 6, 7)
STEREO = ("STEREOE", "STEREOZ")
ATOM_FEATURES = (
    *(f"element {element}" for element in (*ELEMENTS, "another")),
    *(f"{number} bonds" for number in (*range(5), "more")),
    *(f"{number} hydrogens" for number in (*range(4), "more")),
    *(f"number of {kind.lower()} bonds" for kind in BONDS),
    *(f"hybridisation {hybrid.lower()}" for hybrid in HYBRIDS),
    "aromatic",
    *(f"in a ring of {size}" for size in RINGS),
    *("chirality R", "chirality S"),
    *("formal charge, -3 to 3", "charged", "radical"),
)
BOND_FEATURES = (*(kind.lower() for kind in BONDS), "conjugated", "in a ring", "double bond E", "double bond Z")


def atom_features(atom: Any) -> list[float]:
    """The numbers that `ATOM_FEATURES` names."""
    return _encoded(
        *(atom.GetSymbol(), atom.GetDegree(), atom.GetTotalNumHs(), str(atom.GetHybridization())),
        tuple(str(bond.GetBondType()) for bond in atom.GetBonds()),
        tuple(map(atom.IsInRingSize, RINGS)) if atom.IsInRing() else (False,) * len(RINGS),
        *(atom.GetIsAromatic(), _chirality(atom), atom.GetFormalCharge(), atom.GetNumRadicalElectrons()),
    )


@lru_cache(maxsize=10_000)
def _encoded(
    symbol: str, degree: int, hydrogens: int, hybrid: str, bonds: tuple[str, ...], rings: tuple[bool, ...],
    aromatic: bool, chirality: str, charge: int, radicals: int,
) -> list[float]:  # fmt: skip
    hot = [
        [float(value == entry) for entry in known]
        for value, known in ((symbol, ELEMENTS), (degree, range(5)), (hydrogens, range(4)))
    ]
    return [
        *(number for one in hot for number in (*one, float(not any(one)))),
        *(float(bonds.count(kind)) for kind in BONDS),
        *(float(hybrid == one) for one in HYBRIDS),
        float(aromatic),
        *map(float, rings),
        *(float(chirality == one) for one in ("R", "S")),
        *(float(max(-3, min(3, charge))), float(charge != 0), float(radicals > 0)),
    ]


def _chirality(atom: Any) -> str:
    """R or S, also of an atom that has only a side of its ring, as cis and trans have; "" of any other atom."""
    if not atom.HasProp("_CIPCode") and str(atom.GetChiralTag()) != "CHI_UNSPECIFIED":
        from rdkit.Chem.rdCIPLabeler import AssignCIPLabels

        molecule = atom.GetOwningMol()
        sides = [one.GetIdx() for one in molecule.GetAtoms() if not one.HasProp("_CIPCode")]
        with suppress(RuntimeError):  # more comparisons than that, as in a large cage
            AssignCIPLabels(molecule, sides, [], COMPARISONS)
    return str(atom.GetProp("_CIPCode")).upper() if atom.HasProp("_CIPCode") else ""


def bond_features(bond: Any) -> list[float]:
    """The numbers that `BOND_FEATURES` names."""
    return [
        *(float(str(bond.GetBondType()) == kind) for kind in BONDS),
        float(bond.GetIsConjugated()),
        float(bond.IsInRing()),
        *(float(str(bond.GetStereo()) == one) for one in STEREO),
    ]
