import { type BigIntStats, closeSync, existsSync, fstatSync, openSync, readlinkSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { attempt, errorText } from '../../base/errors.ts'
import { programFormat } from '../../base/executable-format.ts'
import type { Permit } from '../../policy/permit.ts'
import { seenFrom } from '../../policy/sandbox/sandbox-grant.ts'
import { MAX_INTERPRETERS } from '../../policy/scripts.ts'
import { SANDBOX_START_MS } from '../../protocol/limits/daemon.ts'
import type { PidNamespace } from '../pid-namespace.ts'
import { TREE_POLL_MS } from '../descendant-tracker.ts'
import { notShown } from '../program-format.ts'

const identityOf = (path: string): Pick<BigIntStats, 'dev' | 'ino'> => statSync(path, { bigint: true })

/** Returns why the program could not start inside: its file or the interpreter of a script is not visible. */
const missingInterpreter = (root: string, path: string, depth = 0): string | null => {
  const format = programFormat(seenFrom(root, path))
  if (format.kind !== 'through' || depth >= MAX_INTERPRETERS) return null
  const { interpreter } = format
  if (attempt(() => seenFrom(root, interpreter)) === null) return notShown(path, interpreter)
  return missingInterpreter(root, interpreter, depth + 1)
}

/** open(2): identifies a file without the right to read it. */
const O_PATH = 0o10_000_000

/** Identifies the file at a path, or null if a link is on the way. */
const standsAt = (path: string): Pick<BigIntStats, 'dev' | 'ino'> | null => {
  const descriptor = openSync(path, O_PATH)
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`) === path ? fstatSync(descriptor, { bigint: true }) : null
  } finally {
    closeSync(descriptor)
  }
}

type FileFact = Pick<Permit, 'executable' | 'cwd' | 'cwd_descriptor' | 'sandbox'>

/** Returns a difference between the sandbox and the permit: file, directory and readable paths must be the permitted ones. */
const differenceIn = (root: string, { executable, cwd, cwd_descriptor, sandbox }: FileFact): string | null => {
  try {
    const program = identityOf(seenFrom(root, executable.path))
    if (program.dev !== executable.dev || program.ino !== executable.ino)
      return `${executable.path} is another file in the sandbox than the one that was permitted`
    const directory = identityOf(seenFrom(root, cwd))
    const meant = identityOf(cwd_descriptor === null ? cwd : `/proc/self/fd/${cwd_descriptor}`)
    if (directory.dev !== meant.dev || directory.ino !== meant.ino)
      return `${cwd} is another directory in the sandbox than the one that was permitted`
    // A readable path may be in a directory that another run writes.
    for (const path of sandbox?.readable ?? []) {
      const [shown, named] = [identityOf(seenFrom(root, path)), standsAt(path)]
      if (named === null || shown.dev !== named.dev || shown.ino !== named.ino)
        return `${path} is another one in the sandbox than tools.exec.sandbox.readable names`
    }
    return missingInterpreter(root, executable.path)
  } catch (error) {
    return `the sandbox could not be checked: ${errorText(error)}`
  }
}

/**
 * Waits until the sandbox exists, while its program has not started. Returns why the program must not start, or null if it may, or if bwrap
 * has ended and reports the reason itself. The directory `marker` identifies the sandbox.
 */
export const namespaceProblem = async (
  namespace: Pick<PidNamespace, 'init' | 'isLost'>,
  { permit, marker, ended }: { readonly permit: FileFact; readonly marker: string; readonly ended: Promise<unknown> },
): Promise<string | null> => {
  const deadline = performance.now() + SANDBOX_START_MS
  for (;;) {
    if (namespace.isLost) return null
    const root = namespace.init === null ? null : `/proc/${namespace.init}/root`
    if (root !== null && existsSync(join(root, marker))) return differenceIn(root, permit)
    if (performance.now() > deadline) return `the sandbox did not start within ${SANDBOX_START_MS / 1_000} s`
    await Promise.race([sleep(TREE_POLL_MS), ended])
  }
}
