import numpy as np

from litlab.util.splitmix import GOLDEN, mix, mix_array

REFERENCE = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # of the published generator, from state 0


def test_numbers_are_those_of_the_published_generator():
    states = [number * GOLDEN % 2**64 for number in (1, 2, 3)]
    assert [mix(state) for state in states] == REFERENCE
    assert mix_array(np.array(states, np.uint64)).tolist() == REFERENCE
