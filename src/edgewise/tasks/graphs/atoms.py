"""What is known of the atoms and bonds of RDKit's molecules, as numbers in a fixed order; it needs nothing else."""

from contextlib import suppress
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
    bonds = [str(bond.GetBondType()) for bond in atom.GetBonds()]
    elements, degrees, hydrogens = (
        [float(value == entry) for entry in known]
        for value, known in (
            (atom.GetSymbol(), ELEMENTS),
            (atom.GetDegree(), range(5)),
            (atom.GetTotalNumHs(), range(4)),
        )
    )
    chirality = _chirality(atom)
    return [
        *(number for hot in (elements, degrees, hydrogens) for number in (*hot, float(not any(hot)))),
        *(float(bonds.count(kind)) for kind in BONDS),
        *(float(str(atom.GetHybridization()) == hybrid) for hybrid in HYBRIDS),
        float(atom.GetIsAromatic()),
        *(float(atom.IsInRingSize(size)) for size in RINGS),
        *(float(chirality == one) for one in ("R", "S")),
        float(max(-3, min(3, atom.GetFormalCharge()))),
        float(atom.GetFormalCharge() != 0),
        float(atom.GetNumRadicalElectrons() > 0),
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
