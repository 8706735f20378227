import assert from 'node:assert/strict'
import { mkdir, mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { holdDirectory } from '../../src/fs/beneath.ts'
import { authorizeFile, authorizeLocalRun } from '../../src/policy/local/authorize.ts'
import type { LocalRunIntent } from '../../src/policy/local/intent.ts'
import type { Permit, SandboxGrant, SandboxImage } from '../../src/policy/permit.ts'
import { sandboxGrant, type SandboxPath } from '../../src/policy/sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX, type SandboxSettings } from '../../src/policy/sandbox/sandbox-settings.ts'
import { ProcessTrees } from '../../src/process/process-trees.ts'
import type { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { startProcess, type ProcessEnd, type RunningProcess } from '../../src/process/running-process.ts'
import { SandboxProbe } from '../../src/process/sandbox/sandbox-probe.ts'
import { ASKING, EVERY_GRANT, policyOf, rightsOf, slotsOf } from './local-policy.ts'
import { groupCells, silent, startGuardian } from './processes.ts'

/** Why no sandbox is available on this machine, or null. */
export const noSandbox = await new SandboxProbe().problem({ network: false })
/** The title of a test that needs bubblewrap. It names the reason if the test is skipped. */
export const titled = (name: string): string => (noSandbox === null ? name : `${name} (skipped: ${noSandbox})`)
export const needsSandbox = { skip: noSandbox !== null }

/** A home with secrets of the user and of x0x, and a project directory in it. */
export interface Household {
  readonly home: string
  readonly project: string
  readonly place: SandboxPath
  /** The form of its sandboxes. Null uses the programs of this host. */
  readonly form: SandboxForm | null
}

export interface SandboxForm {
  readonly settings: SandboxSettings
  readonly image: SandboxImage
}

export const household = async (t: Pick<TestContext, 'after'>): Promise<Household> => {
  const base = await mkdtemp(join(await realpath(tmpdir()), 'x0x-sandbox-'))
  t.after(() => rm(base, { recursive: true, force: true, maxRetries: 10 }))
  const home = join(base, 'person')
  const project = join(home, 'project')
  for (const path of [project, join(home, '.ssh'), join(home, '.x0x')]) await mkdir(path, { recursive: true })
  return { home, project, place: { home, secrets: [join(home, '.ssh'), join(home, '.x0x')] }, form: null }
}

export interface SandboxedOptions {
  readonly settings?: Partial<SandboxSettings>
  /** The files of this image replace the programs of this host. */
  readonly image?: SandboxImage
  /** A working directory other than the project. */
  readonly cwd?: string
  readonly terminal?: LocalRunIntent['terminal']
  readonly env?: Readonly<Record<string, string>>
  readonly stdin?: string
  readonly trees?: ProcessTrees
  readonly cleanup?: CleanupProcess
  readonly timeout_ms?: number
  /** Changes files between the permit and the start. */
  readonly meanwhile?: () => Promise<unknown>
}

export const grantFor = (
  { place, project, form }: Household,
  { settings, image = form?.image, cwd = project }: SandboxedOptions = {},
): SandboxGrant => {
  const verdict = sandboxGrant({ ...(form?.settings ?? DEFAULT_SANDBOX), ...settings }, cwd, place, image)
  assert.ok(verdict.kind === 'grant', verdict.kind === 'refused' ? verdict.message : '')
  return verdict.grant
}

/** A permit of a local interface for a sandboxed run, in a directory that is held open as a session holds it. */
export const sandboxedPermit = async (
  t: Pick<TestContext, 'after'>,
  house: Household,
  argv: readonly string[],
  options: SandboxedOptions = {},
): Promise<Permit> => {
  // As in a console, whose clients may set any variable.
  const policy = { ...policyOf(['/'], { security: EVERY_GRANT }), allow_env: null }
  const rights = rightsOf(policy)
  const asked = authorizeFile({ path: options.cwd ?? house.project, access: 'read' }, rights)
  assert.ok(asked.kind === 'permit')
  const held = await holdDirectory(asked.permit)
  t.after(() => held[Symbol.dispose]())
  const { terminal = null, env = {}, timeout_ms = null } = options
  const verdict = authorizeLocalRun(
    { ...ASKING, argv, terminal, env, timeout_ms },
    { path: held.real, descriptor: held.descriptor },
    { policy, rights, slots: slotsOf(rights.limits), session_id: 's_1', sandbox: grantFor(house, options) },
  )
  assert.ok(verdict.kind === 'permit', verdict.kind === 'refused' ? verdict.message : 'it asks')
  return verdict.permit
}

export interface Sandboxed {
  readonly process: RunningProcess
  stdout(): string
  stderr(): string
}

/** Starts the run, or returns why it did not start. */
export const startSandboxed = async (
  t: Pick<TestContext, 'after'>,
  house: Household,
  argv: readonly string[],
  options: SandboxedOptions = {},
): Promise<Sandboxed | { readonly failed: string }> => {
  const permit = await sandboxedPermit(t, house, argv, options)
  await options.meanwhile?.()
  const parts: Record<'stdout' | 'stderr', Buffer[]> = { stdout: [], stderr: [] }
  const cleanup = options.cleanup ?? startGuardian(t as TestContext)
  const components = {
    trees: options.trees ?? (await groupCells()),
    clock: systemClock,
    cleanup,
    handlers: {
      onOutput: (stream: 'stdout' | 'stderr', data: Uint8Array) => void parts[stream].push(Buffer.from(data)),
      onWarning: () => undefined,
    },
  }
  const { stdin } = options
  const started = await startProcess(permit, components, { stdin: stdin !== undefined || permit.terminal !== null })
  if (started.kind === 'spawn_failed') return { failed: started.detail }
  const { process } = started
  t.after(() => process.kill())
  process.resume()
  if (stdin !== undefined) await process.stdin?.write(Buffer.from(stdin))
  if (stdin !== undefined) process.stdin?.end()
  return { process, stdout: () => Buffer.concat(parts.stdout).toString(), stderr: () => Buffer.concat(parts.stderr).toString() }
}

/** Runs it to its end. */
export const runSandboxed = async (
  t: Pick<TestContext, 'after'>,
  house: Household,
  argv: readonly string[],
  options: SandboxedOptions = {},
): Promise<{ readonly end: ProcessEnd; readonly stdout: string; readonly stderr: string }> => {
  const started = await startSandboxed(t, house, argv, options)
  assert.ok(!('failed' in started), 'failed' in started ? started.failed : '')
  const end = await started.process.ended
  return { end, stdout: started.stdout(), stderr: started.stderr() }
}

/** Opens a containment. The test removes its control groups. */
export const cellsOf = async (t: Pick<TestContext, 'after'>, choice: 'cgroup' | 'group' | 'pid_namespace'): Promise<ProcessTrees> => {
  const trees = await ProcessTrees.open({ cleanup: null, log: silent }, { choice, dataDir: null })
  t.after(() => trees.stop())
  return trees
}
