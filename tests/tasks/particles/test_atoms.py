import numpy as np
import pytest
import torch

from edgewise.tasks.particles.atoms import CALCULATORS, KINETIC, Frames, drift, simulate

ase = pytest.importorskip("ase")
units = pytest.importorskip("ase.units")


def copper(count=3):
    """Some copper atoms in a row, not quite at rest."""
    atoms = ase.Atoms(f"Cu{count}", [[2.5 * k, 0.1 * (k % 2), 0] for k in range(count)])
    atoms.set_velocities(np.random.RandomState(0).randn(count, 3) * 0.005 / units.fs)
    return atoms


def test_atoms_move_as_newton_wants():
    """Velocity Verlet written out in Å, fs, u and eV."""
    atoms, emt = copper(), CALCULATORS["emt"]()
    made = simulate(atoms, emt, frames=4, every=2, step=3.0)
    x, v, m = atoms.get_positions(), made.velocities[0].numpy(), atoms.get_masses()[:, None] * KINETIC

    def force(x):
        body = ase.Atoms(atoms.numbers, x, calculator=CALCULATORS["emt"]())
        return body.get_forces(), body.get_potential_energy()

    for frame in range(4):
        f, energy = force(x)
        assert np.allclose(made.positions[frame], x, atol=1e-9) and np.allclose(made.velocities[frame], v, atol=1e-9)
        assert np.allclose(made.forces[frame], f, atol=1e-7) and made.energies[frame] == pytest.approx(energy)
        assert made.kinetic[frame] == pytest.approx(float((0.5 * m * v**2).sum()))
        for _ in range(2):
            v = v + 1.5 * force(x)[0] / m
            x = x + 3.0 * v
            v = v + 1.5 * force(x)[0] / m
    assert np.array_equal(atoms.get_positions(), copper().get_positions())


class Springs(pytest.importorskip("ase.calculators.calculator").Calculator):
    """A calculator of one's own: each atom hangs on a spring at the origin."""

    implemented_properties = ("energy", "forces")

    def calculate(self, atoms=None, properties=None, system_changes=()):
        super().calculate(atoms, properties, system_changes)
        x = self.atoms.get_positions()
        self.results = {"energy": 0.5 * (x**2).sum(), "forces": -x}


def test_any_calculator_moves_atoms_and_a_bath_has_its_temperature():
    atoms = ase.Atoms("Ar20", np.zeros((20, 3)))
    made = simulate(atoms, Springs(), 150, every=5, step=5.0, temperature=100.0, seed=1)
    repeated = simulate(atoms, Springs(), 3, every=5, step=5.0, temperature=100.0, seed=1)
    assert torch.equal(made.positions[:3], repeated.positions)
    assert torch.equal(made.forces, -made.positions)
    temperature = float(made.kinetic[30:].mean()) / (1.5 * 20 * units.kB)
    assert 85 < temperature < 115


def test_drift_is_what_the_total_energy_does():
    still = torch.zeros(5, 1, 3, dtype=torch.float64)
    v = still.clone()
    v[..., 0] = (2 * 0.5 / KINETIC) ** 0.5  # kinetic energy 0.5 eV
    energies = torch.tensor([1.0, 1.1, 1.2, 1.3, 1.4], dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    changed = drift(Frames(one.long(), one, torch.zeros(3), still, v, still, energies))
    assert (changed.largest, changed.trend) == (pytest.approx(0.4), pytest.approx(0.4))
    assert (changed.kinetic, changed.total) == (pytest.approx(0.5), pytest.approx(1.5))


def test_a_simulation_keeps_its_energy_and_a_longer_step_less_so():
    drifts = [drift(simulate(copper(), CALCULATORS["emt"](), 60, step=step)) for step in (2.0, 8.0)]
    assert drifts[0].largest < 2e-3 * drifts[0].kinetic
    assert 8 < drifts[1].largest / drifts[0].largest < 24  # of second order in the step
