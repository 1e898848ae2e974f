#!/usr/bin/env python3
"""Writes torch_*.csv with torch.distributed.pipelining: python make_torch_csv.py [DIR]

The orders are those that torch computes; they are written as its schedules write them, compute
only. With files as arguments, reads each as torch does, checks it and writes FILE.torch: so came
starpipe_*.csv out of `starpipe show --format csv`.
"""
import csv
import os
import sys

import torch.distributed.pipelining.schedules as s


def write(path, order):
    with open(path, "w", newline="") as out:
        writer = csv.writer(out)
        for rank in sorted(order):
            writer.writerow(order[rank])


def made(cls, p, m, v):
    """The order of a schedule class for p ranks of v stages, without processes."""
    new = object.__new__(cls)
    new.pp_group_size = p
    new.n_local_stages = v
    new._num_stages = new.num_stages = p * v
    new._n_microbatches = m
    new.number_of_rounds = max(1, m // p)
    new.microbatches_per_round = m // new.number_of_rounds
    new.stage_index_to_group_rank = None
    return {rank: new._calculate_single_rank_operations(rank) for rank in range(p)}


def one_f_one_b(p, m):
    order = {}
    for rank in range(p):
        warm = min(p - 1 - rank, m)
        ops = [(s.F, i) for i in range(warm)]
        for k in range(m - warm):
            ops += [(s.F, warm + k), (s.B, k)]
        ops += [(s.B, k) for k in range(m - warm, m)]
        order[rank] = [s._Action(rank, kind, i) for kind, i in ops]
    return order


def read(path):
    with open(path, newline="") as f:
        return {rank: [s._Action.from_str(cell) for cell in row]
                for rank, row in enumerate(csv.reader(f))}


def check(path):
    order = read(path)
    flat = [a for row in order.values() for act in row if act is not None
            for a in (act.sub_actions or (act,))]
    stages = 1 + max(a.stage_index for a in flat)
    micro = 1 + max(a.microbatch_index for a in flat)
    where = s._validate_schedule(order, len(order), stages, micro)
    write(path + ".torch", order)
    print(f"{path}: {len(order)} ranks, {stages} stages, {micro} micro-batches, {len(flat)} ops, "
          f"stages on ranks {[where[i] for i in range(stages)]}")


if __name__ == "__main__":
    files = [a for a in sys.argv[1:] if os.path.isfile(a)]
    for name in files:
        check(name)
    if not files:
        base = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
        write(base + "/torch_1f1b_p4_m8.csv", one_f_one_b(4, 8))
        write(base + "/torch_interleavedzb_p4_m8_v2.csv",
              made(s.ScheduleInterleavedZeroBubble, 4, 8, 2))
        write(base + "/torch_zbv_p4_m8_v2.csv", made(s.ScheduleZBVZeroBubble, 4, 8, 2))
        write(base + "/torch_dualpipev_p4_m8_v2.csv", made(s.ScheduleDualPipeV, 4, 8, 2))
