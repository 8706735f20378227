import { statSync } from 'node:fs'
import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import { AppError, errorText } from '../base/errors.ts'
import { changedPin } from '../policy/file-mark.ts'
import type { TerminalSize } from '../executor-api/local.ts'
import { type Permit, isPermit } from '../policy/permit.ts'
import { programPath, seenIn } from '../policy/sandbox/sandbox-grant.ts'
import type { Containment } from '../protocol/reasons.ts'
import type { ProcessTree } from './process-tree.ts'
import type { TreeOpening, ProcessTreeSource } from './process-trees.ts'
import type { CleanupProcess } from './cleanup-process.ts'
import type { Child } from './child.ts'
import { type LaunchPlan, directoryOf, feed, launch, planLaunch } from './launch-plan.ts'
import { MAX_WRAPPER_TEXT, PidNamespace } from './pid-namespace.ts'
import type { PrivateCopies, ProgramFiles } from './private-copies.ts'
import { launchObstacle } from './program-format.ts'
import { namespaceProblem } from './sandbox/verify.ts'
import type { ExitStatus, ProcessSignal } from './signals.ts'

/** A started program or its wrapper, which leads a new session and group. */
export interface SpawnedProgram {
  readonly pid: number
  readonly tree: Pick<ProcessTree, 'containment' | 'mayLeak' | 'leftBehind' | 'leaderLives' | 'refusesSignals'>
  /** Null means it reads /dev/null. */
  readonly stdin: Writable | null
  readonly stdout: Readable
  readonly stderr: Readable
  /** Like `ProcessTree.signal`. */
  signal(signal: ProcessSignal): void
  /** Null without a terminal. */
  readonly resize: ((size: TerminalSize) => void) | null
  /** Resolves when the process was reaped and the rest of its tree killed. */
  readonly exited: Promise<ExitStatus>
}

export interface ProgramStart {
  readonly pid: number
  readonly containment: Containment
}

/** A failed start is a value. The requester is denied `spawn_failed`, and `detail` stays on this machine. */
export interface SpawnFailure {
  readonly kind: 'spawn_failed'
  readonly detail: string
  /** A program that ran for a moment until it was killed, or null. */
  readonly ran: ProgramStart | null
}

export type SpawnResult = { readonly kind: 'spawned'; readonly child: SpawnedProgram } | SpawnFailure

export interface SpawnDeps {
  readonly trees: ProcessTreeSource
  /** Absent if no permit of this program needs a private copy. */
  readonly copies?: PrivateCopies
  readonly cleanup: CleanupProcess
}

const failed = (detail: string, ran: ProgramStart | null = null): SpawnResult => ({ kind: 'spawn_failed', detail, ran })

/** The file at the path must still be the permitted one. */
const launchProblem = (permit: Permit): string | null => {
  const { executable, cwd } = permit
  try {
    const info = statSync(programPath(permit), { bigint: true })
    if (info.dev !== executable.dev || info.ino !== executable.ino) return `${executable.path} was replaced after it was permitted`
  } catch (error) {
    return errorText(error)
  }
  try {
    // The runtime would report a missing directory as a missing program.
    if (!statSync(directoryOf(permit)).isDirectory()) return `the working directory ${cwd} is not a directory`
  } catch (error) {
    return `the working directory: ${errorText(error)}`
  }
  return pinProblem(permit)
}

/** Every hashed file must be unchanged at the last moment before the start. */
const pinProblem = ({ pins }: Permit): string | null => {
  const changed = changedPin(pins)
  return changed === null ? null : `${changed} was changed after it was permitted`
}

/** A wrapper's error output when it does not execute the program. */
const complaintOf = async (stderr: Readable): Promise<string> => {
  let text = ''
  for await (const chunk of stderr) text = (text + String(chunk)).slice(0, MAX_WRAPPER_TEXT)
  return text.trim() || 'it ended before the program began'
}

/**
 * Starts a permit without a shell, in a new session and group, with exactly its environment, and with only the three standard descriptors.
 * Accepts only permits that `authorize` created.
 */
export const spawnPermitted = async (permit: Permit, deps: SpawnDeps, options: { stdin: boolean }): Promise<SpawnResult> => {
  if (!isPermit(permit)) throw new AppError('internal', 'only a permit can be run')
  const { trees } = deps
  const support = permit.sandbox === null ? null : await trees.sandboxSupport(permit.sandbox)
  if (support?.kind === 'impossible') return failed(support.problem)
  const opening = trees.open(permit)
  if (opening.kind === 'failed') return failed(opening.detail)
  const { tree } = opening
  const userNamespace = support?.userNamespace ?? true
  let discard = (): void => {}
  const start = async (): Promise<SpawnResult> => {
    const { remove, ...starting } = copiesFor(permit, deps)
    discard = remove
    return spawnIn(opening, { permit, starting }, deps, { ...options, userNamespace })
  }
  const result = await start().catch((error: unknown) => failed(errorText(error)))
  if (result.kind === 'spawn_failed') {
    await tree.end()
    discard()
  } else void result.child.exited.finally(discard)
  return result
}

const copiesFor = (permit: Permit, { copies }: SpawnDeps): ReturnType<PrivateCopies['make']> => {
  const { stand_in, argv, executable } = permit
  if (stand_in === null) return { argv, executable, copies: [], remove: () => {} }
  if (copies === undefined) throw new AppError('internal', 'no directory for private copies')
  return copies.make(stand_in)
}

/** Resolves when the child was reaped and its tree is empty, or null if a wrapper never executed the program. */
const endOf = async (child: Child, tree: ProcessTree, namespace: PidNamespace | null): Promise<ExitStatus | null> =>
  new Promise((resolve) => {
    // The tree ends at once, because the PID may be reused from now on.
    child.onExit = (exit) => resolve(tree.end().then(() => (namespace === null ? exit : namespace.translate(exit))))
  })

/** Sets the size of the program's terminal, or sends it to the terminal's holder. */
const resizerOf = (child: Child, { control }: LaunchPlan): SpawnedProgram['resize'] => {
  if (child.resize !== null) return child.resize
  const sizes = control === null ? null : feed(child, control)
  return sizes && (({ cols, rows }) => void sizes.write(`${cols} ${rows}\n`))
}

/** The permit, and the files that are started for it. */
interface Run {
  readonly permit: Permit
  readonly starting: ProgramFiles
}

/** Releases the program of a sandbox after the sandbox was compared with the permit. Returns why it must not start. */
const letBegin = async (
  child: Child,
  { run, plan, namespace, ended }: { run: Run; plan: LaunchPlan; namespace: PidNamespace | null; ended: Promise<unknown> },
): Promise<string | null> => {
  if (plan.sandbox === null || namespace === null) return null
  const { marker, gate } = plan.sandbox
  const { permit, starting } = run
  const problem = (await namespaceProblem(namespace, { permit: { ...permit, ...starting }, marker, ended })) ?? pinProblem(permit)
  if (problem === null) feed(child, gate)?.end('\n')
  return problem
}

const spawnIn = async (
  { tree, inNamespace }: Extract<TreeOpening, { kind: 'open' }>,
  run: Run,
  { cleanup }: SpawnDeps,
  options: { stdin: boolean; userNamespace: boolean },
): Promise<SpawnResult> => {
  const { permit, starting } = run
  const started = { ...permit, ...starting }
  const plan = planLaunch(started, inNamespace, options.userNamespace)
  if ('problem' in plan) return failed(plan.problem)
  cleanup.ensure()
  // Without a wrapper the system checks that user's rights itself.
  const problem =
    launchObstacle(started.executable.path, plan.isWrapped ? permit.account : null, (path) =>
      permit.sandbox === null || starting.copies.includes(path) ? path : seenIn(permit.sandbox, path),
    ) ?? launchProblem(permit)
  if (problem !== null) return failed(problem)
  const child = await tree.enter(() => launch(plan, started, { stdin: options.stdin, mark: tree.mark }))
  const { pid } = child
  const [stdin = null, stdout, stderr, status] = child.stdio
  if (!stdout || !stderr) throw new AppError('internal', 'a program was started without its output')
  const namespace = plan.inNamespace && status ? new PidNamespace({ wrapper: pid, status }) : null
  const exited = endOf(child, tree, namespace).finally(() => cleanup.release(pid))
  try {
    // In the same turn, so that the daemon cannot die in between.
    if (tree.containment !== 'cgroup') cleanup.protect(pid)
    tree.adopt(pid, namespace)
  } catch (error) {
    tree.signal('SIGKILL')
    await exited
    for (const stream of child.stdio) stream?.destroy()
    return failed(`it was killed, because its limits could not be set: ${errorText(error)}`, { pid, containment: tree.containment })
  }
  const obstacle = await letBegin(child, { run, plan, namespace, ended: exited })
  if (obstacle !== null) {
    tree.signal('SIGKILL')
    await exited
    for (const stream of child.stdio) stream?.destroy()
    return failed(obstacle)
  }
  await namespace?.begun(exited)
  if (namespace?.isLost === true && (await exited) === null) {
    const complaint = await complaintOf(stderr)
    for (const stream of child.stdio) stream?.destroy()
    return failed(complaint)
  }
  const settled = exited.then((exit) => exit ?? { code: null, signal: constants.signals.SIGKILL })
  return {
    kind: 'spawned',
    child: { pid, tree, stdin, stdout, stderr, exited: settled, signal: (signal) => tree.signal(signal), resize: resizerOf(child, plan) },
  }
}
