import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { wholeLines } from '../test/support/journal.ts'
import { MeshOfDaemons, type JournalLineJson } from '../test/support/mesh-of-daemons.ts'
import { straceNeeds, systemCalls } from '../test/support/strace.ts'
import { NOTE_SYNC_MS } from '../src/journal/writer.ts'
import { CONTAINMENT_FILE, readContainmentRecord } from '../src/process/process-trees.ts'

// Counts the system calls of a run instead of measuring times: syncs of the disk and starts of processes.

const needs = straceNeeds()
const RUNS = 20
const COUNTED = ['fsync', 'fdatasync', 'sync_file_range', 'fork', 'vfork', 'clone', 'clone3', 'execve', 'mkdir', 'rmdir']

/** Maximum number of syncs that are not part of a run: a signed head each minute, and `started` for runs that take long. */
const besideRuns = (journal: string): number => {
  const lines = wholeLines(readFileSync(journal, 'utf8')).map((line) => JSON.parse(line) as JournalLineJson)
  const long = lines.filter(({ event, duration_ms }) => event === 'exit' && Number(duration_ms) >= NOTE_SYNC_MS / 2)
  return lines.filter(({ event }) => event === 'head').length + long.length
}

test(
  'a warm run needs two disk syncs on the target and one on the requester, and starts one process',
  {
    timeout: 120_000,
    skip: needs === null ? false : `needs ${needs}`,
  },
  async (t) => {
    const mesh = await MeshOfDaemons.create()
    t.after(async () => mesh.stop())
    const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
    await alice.start()
    await bob.writeAcl([{ agent: alice, commands: [['/bin/true']] }])
    await bob.start()
    await alice.meet(bob, 'known')
    await bob.meet(alice, 'trusted')
    const runs = async (): Promise<void> => {
      for (let run = 0; run < RUNS; run++) assert.equal(await alice.run(bob, ['/bin/true']), 0)
    }
    await runs()
    const perRun = async (pid: number): Promise<Record<string, number>> =>
      Object.fromEntries([...(await systemCalls(pid, runs, COUNTED))].map(([name, count]) => [name, count / RUNS]))
    /** System calls per run of one process, without the syncs that are not part of a run. */
    const ofRuns = async (pid: number, journal: string, syncs: number): Promise<Record<string, number>> => {
      const before = besideRuns(journal)
      const { fdatasync = 0, clone = 0, clone3 = 0, ...counts } = await perRun(pid)
      const beside = (besideRuns(journal) - before) / RUNS
      // The C library uses one of the two.
      const starts = clone + clone3 > 0 ? { starts: clone + clone3 } : {}
      return { ...counts, ...starts, fdatasync: fdatasync >= syncs && fdatasync <= syncs + beside ? syncs : fdatasync }
    }
    const ran = await ofRuns(bob.pid, bob.journalFile, 2)
    const containment = await readContainmentRecord(join(bob.dir, CONTAINMENT_FILE))
    const group = containment?.in_force === 'cgroup' ? { mkdir: 1, rmdir: 1 } : {}
    assert.deepEqual(ran, { ...group, execve: 1, starts: 1, fdatasync: 2 }, 'where it runs: its request, its end, its control group')
    const asked = await ofRuns(alice.pid, join(alice.dir, 'requests.jsonl'), 1)
    assert.deepEqual(asked, { fdatasync: 1 }, 'where it is asked for: what is signed')
    assert.deepEqual(await perRun(await bob.networkPid()), {}, 'the half that faces the network does neither')
    assert.deepEqual(await perRun(await alice.networkPid()), {})
  },
)
