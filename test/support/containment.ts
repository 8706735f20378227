import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { chmod, copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { UNCONFINED, type Confinement } from '../../src/policy/mesh/confinement.ts'
import { findExecutable } from '../../src/policy/executable.ts'
import { ProcessTrees } from '../../src/process/process-trees.ts'
import { findCgroupPlaces } from '../../src/process/cgroup-tree.ts'
import { Cgroups } from '../../src/process/cgroups.ts'
import type { ContainmentChoice } from '../../src/protocol/reasons.ts'
import { silent, start, temporaryDirectory, type StartedProcess, type StartOptions } from './processes.ts'

const tried = new Cgroups({ parentName: `x0x-test-${process.pid}`, places: findCgroupPlaces() })
const cgroupProblem = await tried.holdingProblem()
const pidsProblem = await tried.limitProblem('pids')
const memoryProblem = await tried.limitProblem('memory')
tried.close()

const unless = (problem: string | null): { skip?: string } => (problem === null ? {} : { skip: problem })

export const hasBwrap = findExecutable('bwrap').kind === 'found'
export const isRoot = process.geteuid?.() === 0
/** Requirements of tests that this machine may not meet. */
export const needs = {
  cgroup: unless(cgroupProblem),
  pids: unless(pidsProblem),
  memory: unless(memoryProblem),
  bwrap: unless(hasBwrap ? null : 'install bubblewrap'),
  root: unless(isRoot ? null : 'needs root'),
}

/** Opens the containment `choice` for runs with these limits. The test fails if a control group remains at its end. */
export const openCells = async (t: TestContext, choice: ContainmentChoice, asked: Partial<Confinement> = {}): Promise<ProcessTrees> => {
  const trees = await ProcessTrees.open({ cleanup: null, log: silent }, { choice, dataDir: null })
  t.after(async () => {
    await trees.stop()
    assert.deepEqual(trees.groups.filter(existsSync), [], 'a control group was left behind')
  })
  assert.deepEqual(await trees.judge({ ...UNCONFINED, ...asked }), [])
  return trees
}

/** Starts an argv in a containment. */
export const startConfined = async (
  t: TestContext,
  argv: readonly string[],
  { choice = 'auto', confinement = {}, ...options }: StartOptions & { choice?: ContainmentChoice },
): Promise<StartedProcess> => start(t, argv, { ...options, confinement, trees: await openCells(t, choice, confinement) })

/** A copy of a program that every user may execute, in a directory that every user may enter. */
export const openToAll = async (t: TestContext, program: string): Promise<string> => {
  const directory = await temporaryDirectory(t)
  await chmod(directory, 0o755)
  const path = join(directory, 'program')
  await copyFile(program, path)
  await chmod(path, 0o755)
  return path
}
