"""A cause: at the smaller batch size a kernel had fewer blocks than the device has SMs, so that
some of them idled.

Amount: of a negative bend or excess, what the term saved per block once every SM had one. An
example, not a proof.
"""

from curvescope.analysis.causes.evidence import Claim, Strength, cite

CAUSE = "small grid"


def weigh(case):
    """Claim the whole of a negative term whose only kernel filled too few SMs at the smaller batch
    size.
    """
    sms = case.hardware.sm_count
    before, after = case.at(case.before), case.at(case.after)
    if case.share.value.value >= 0 or sms is None or len(before) != 1 or len(after) != 1:
        return None
    blocks = before[0].blocks, after[0].blocks
    if None in blocks or not blocks[0] < sms <= blocks[1]:
        return None
    return Claim(
        cause=CAUSE,
        amount=case.share.value.value,
        strength=Strength.SIGN,
        evidence=(cite("blocks of the grid", blocks, "", "kernels.grid_x"),),
        refuted_by="Padding the grid with idle blocks does not change the time at the smaller "
        "batch size.",
    )
