"""SplitMix64, primes and rounding in plain integers, for the rules of the contract only.

Oracles and implementations carry their own: nothing that is judged may share a helper with its judge.
"""

from typing import Final

MASK64: Final = 0xFFFF_FFFF_FFFF_FFFF
_WITNESSES: Final = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def splitmix64(state: int, *, gamma: int, m1: int, m2: int, mask: int = MASK64) -> int:
    """Returns one SplitMix64 output: add gamma, then two xor-multiply steps and a last xor, modulo 2^64."""
    mixed = (state + gamma) & mask
    mixed = ((mixed ^ (mixed >> 30)) * m1) & mask
    mixed = ((mixed ^ (mixed >> 27)) * m2) & mask
    return mixed ^ (mixed >> 31)


def is_prime(number: int) -> bool:
    """Decides primality without error for every number below 3.3 x 10^24 (Miller-Rabin, fixed bases)."""
    if number < 2:
        return False
    for prime in _WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in _WITNESSES:
        power = pow(base, odd, number)
        if power in {1, number - 1}:
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def primes_after(start: int, count: int, *, skip: int = 0) -> tuple[int, ...]:
    """Returns `count` consecutive primes above `start`, after the first `skip` of them.

    Raises:
        ValueError: for a count that no real table has, so that a damaged contract can't make it run for hours.
    """
    if not 0 <= count + skip <= 4096:
        raise ValueError(f"{count} primes after {skip} are more than any table has")
    found: list[int] = []
    candidate = start
    while len(found) < count + skip:
        candidate += 1
        if is_prime(candidate):
            found.append(candidate)
    return tuple(found[skip:])


def align_up(value: int, step: int) -> int:
    """Returns the smallest multiple of `step` that is not below `value`."""
    return -(-value // step) * step
