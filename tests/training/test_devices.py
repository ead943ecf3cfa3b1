"""Sums over devices: the same numbers, types and shapes as leaf by leaf, and nothing outside a program."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from numpy.testing import assert_array_equal

from coplay.training.devices import AXIS, Masked, masked_mean, masked_means, total


def on_two_devices(function, x):
    mesh = Mesh(np.array(jax.devices()[:2]), (AXIS,))
    spec = PartitionSpec(AXIS)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=PartitionSpec()))(x)


def test_leaves_of_several_types_and_shapes_are_each_summed():
    big = 2**24 + 1  # lost if counts were added as float32

    def tree(x):
        return {
            "matrix": x.reshape(1, 3, 2),
            "count": jnp.full((), big, jnp.int32),
            "scalar": x[0, 0],
            "more": jnp.arange(4, dtype=jnp.int32),
        }

    x = jnp.arange(12.0).reshape(2, 6)
    added = on_two_devices(lambda part: total(tree(part)), x)
    assert_array_equal(added["matrix"], (x[0] + x[1]).reshape(1, 3, 2))
    assert_array_equal(added["scalar"], x[0, 0] + x[1, 0])
    assert added["count"].dtype == jnp.int32 and int(added["count"]) == 2 * big
    assert_array_equal(added["more"], 2 * np.arange(4))


def test_a_mean_over_devices_counts_the_rows_of_both():
    x = jnp.array([[1.0, 2.0, 9.0], [6.0, 9.0, 9.0]])
    mask = x < 9.0
    rows = jnp.stack([x, mask.astype(jnp.float32)], axis=1)
    mean = on_two_devices(lambda part: masked_mean(part[:, 0], part[:, 1] > 0, (0, 1)), rows)
    assert float(mean) == 3.0


def test_several_means_are_those_of_each_and_devices_meet_once_for_all():
    x = jnp.array([[1.0, 2.0, 9.0], [6.0, 9.0, 9.0]])
    rows = jnp.stack([x, (x < 9.0).astype(jnp.float32)], axis=1)

    def both(part):
        values, mask = part[:, 0], part[:, 1] > 0
        means = masked_means({"all": Masked(values, mask, (0, 1)), "twice": Masked(2 * values, mask, (0, 1))})
        return means["all"], means["twice"]

    assert [float(mean) for mean in on_two_devices(both, rows)] == [3.0, 6.0]
    assert str(jax.make_jaxpr(lambda x: on_two_devices(both, x))(rows)).count("psum") == 1


def test_outside_a_sharded_program_a_total_is_what_it_was_given():
    tree = {"a": jnp.ones(3), "b": jnp.int32(2)}
    assert_array_equal(total(tree)["a"], tree["a"])
    assert int(total(tree)["b"]) == 2
