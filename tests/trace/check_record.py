#!/usr/bin/env python3
"""Checks the record of a step: check_record.py TRACE.json [LOG.jsonl]

The Trace Event Format: slices of a track nest or follow each other, every flow begins inside a slice and ends
inside a slice, every track has a name. What starpipe puts in it: every op once and on the track of its stage,
every message sent and received, sums as the step of the log has them. Prints its figures; the exit status is 1
with the first thing that is wrong.
"""
import json
import sys
from collections import defaultdict


def wrong(text):
    print(f"FAIL: {text}")
    sys.exit(1)


def near(a, b):
    return abs(a - b) <= 1e-6 * max(1, abs(a), abs(b))


def check_form(events):
    tracks, names = defaultdict(list), {}
    for e in events:
        for key in {"X": ("pid", "tid", "ts", "dur", "name"), "M": ("pid", "name", "args"),
                    "C": ("pid", "ts", "name", "args"), "s": ("id", "pid", "tid", "ts"),
                    "t": ("id", "pid", "tid", "ts"), "f": ("id", "pid", "tid", "ts", "bp")}[e["ph"]]:
            if key not in e:
                wrong(f"no {key} in {e}")
        if e["ph"] == "X":
            if e["dur"] < 0:
                wrong(f"ends before it begins: {e}")
            tracks[e["pid"], e["tid"]].append(e)
        if e["ph"] == "M" and e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
    for key, slices in tracks.items():
        if key not in names:
            wrong(f"track {key} has no name")
        slices.sort(key=lambda e: (e["ts"], e["ts"] + e["dur"]))
        for a, b in zip(slices, slices[1:]):
            # viewers count in nanoseconds
            if int(b["ts"] * 1000) < int(a["ts"] * 1000) + int(a["dur"] * 1000):
                wrong(f"{names[key]}: {a['name']} and {b['name']} overlap")
    return tracks, names


def check_flows(events, tracks):
    """The slice that each end of a flow lies in, by message."""
    ends = defaultdict(dict)
    for e in events:
        if e["ph"] not in "stf":
            continue
        inside = [s for s in tracks[e["pid"], e["tid"]]
                  if s["ts"] <= e["ts"] <= s["ts"] + s["dur"] + 0.001]
        if not inside:
            wrong(f"a flow lies in no slice: {e}")
        if e["ph"] in ends[e["id"]]:
            wrong(f"flow {e['id']} has two of {e['ph']}")
        ends[e["id"]][e["ph"]] = (e, inside)
    return ends


def check_messages(events, ends, head):
    messages = [e for e in events if e["ph"] == "X" and e["cat"] == "message"]
    sent, apart, moved = defaultdict(int), 0, 0
    rank = [s["rank"] for s in head["stage"]]
    for m in messages:
        a, flow = m["args"], ends[m["args"]["message"] + 1]
        if "s" not in flow or "f" not in flow:
            wrong(f"message {m['name']} is not sent and received")
        for end, what in (("s", "writer"), ("f", "reader")):
            if what in a and not any(s["cat"] == "op" and [s["args"]["stage"], s["args"]["index"]] == a[what]
                                     for s in flow[end][1]):
                wrong(f"flow {end} of {m['name']} is not in its {what}")
        if not a["ready"] <= a["sent"] + 1e-9 <= a["arrived"] + 2e-9:
            wrong(f"{m['name']}: ready {a['ready']}, sent {a['sent']}, arrived {a['arrived']}")
        if a["kind"] not in ("EVICT", "FETCH") and rank[a["from"]] != rank[a["to"]]:
            # a prediction has a stage's part of a collective with the stage
            ring = head["source"] == "predicted" and a["kind"] != "SEND"
            sent[a["to" if ring else "from"]] += a["bytes"]
            apart += 1
            moved += a["arrived"] > a["begun"]
    if head["source"] == "measured" and moved < 0.9 * apart:  # clocks of ranks may be some us apart
        wrong(f"of {apart} messages between processes {moved} took time")
    if len(ends) != len(messages):
        wrong(f"{len(ends)} flows, {len(messages)} messages")
    return messages, sent, apart


def check_ops(events, names, head):
    ops = [e for e in events if e["ph"] == "X" and e["cat"] == "op"]
    seen, busy = set(), defaultdict(float)
    for e in ops:
        a = e["args"]
        key = a["stage"], a["index"]
        if key in seen:
            wrong(f"{e['name']} is there twice")
        seen.add(key)
        busy[a["stage"]] += a["busy"]
        if not names[e["pid"], e["tid"]].startswith(f"stage {a['stage']}"):
            wrong(f"{e['name']} of stage {a['stage']} is on track {names[e['pid'], e['tid']]}")
    for stage, index in seen:
        if index and (stage, index - 1) not in seen:
            wrong(f"op {index - 1} of stage {stage} is missing")
    if sorted(e["args"]["turn"] for e in ops) != list(range(len(ops))):
        wrong("the order of submission has gaps")
    for s, stage in enumerate(head["stage"]):
        if not near(busy[s], stage["busy_ms"]):
            wrong(f"stage {s}: ops are busy for {busy[s]}, in all {stage['busy_ms']}")
    return ops


def peaks(events):
    most = defaultdict(int)
    for e in events:
        if e["ph"] == "C" and e["name"].startswith("stashed bytes of stage "):
            stage = int(e["name"].split()[-1])
            most[stage] = max(most[stage], e["args"]["value"])
    return most


def main():
    record = json.load(open(sys.argv[1]))
    events, head = record["traceEvents"], record["otherData"]
    tracks, names = check_form(events)
    ops = check_ops(events, names, head)
    messages, sent, apart = check_messages(events, check_flows(events, tracks), head)
    most = peaks(events)
    for s, stage in enumerate(head["stage"]):
        if sent[s] != stage["bytes_sent"]:
            wrong(f"stage {s} sends {sent[s]} bytes in messages, {stage['bytes_sent']} in all")
        # of two ops at the same time, one gives layers back while the other takes them; the counter has whole ops
        pairs = any("beside" in name for name in names.values())
        if stage["peak_activation_bytes"] and not stage["bytes_offloaded"] and \
                most[s] != stage["peak_activation_bytes"] and not (pairs and most[s] > stage["peak_activation_bytes"]):
            wrong(f"stage {s}: counter at most {most[s]}, peak {stage['peak_activation_bytes']}")
    if len(sys.argv) > 2:
        step = next(line for line in map(json.loads, open(sys.argv[2])) if line.get("step") == head["step"])
        for mine, logged in zip(head["stage"], step["stages"]):
            for key in ("busy_ms", "idle_ms", "core_wait_ms", "comm_wait_ms", "bubble_ratio", "bytes_sent",
                        "peak_activation_bytes", "bytes_offloaded", "bytes_brought_back", "offload_stall_ms"):
                if not near(mine[key], logged[key]):
                    wrong(f"{key}: {mine[key]} in the record, {logged[key]} in the log")
        if not near(head["span_ms"], step["span_ms"]):
            wrong(f"span {head['span_ms']}, {step['span_ms']} in the log")
    print(f"{len(ops)} ops, {len(messages)} messages ({apart} between processes), {len(tracks)} tracks, "
          f"{sum(sent.values())} bytes sent")


main()
