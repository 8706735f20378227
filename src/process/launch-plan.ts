import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { attempt } from '../base/errors.ts'
import { findExecutable } from '../policy/executable.ts'
import { type Confinement, needsNamespace, umaskOf } from '../policy/mesh/confinement.ts'
import type { Terminal } from '../executor-api/local.ts'
import type { Permit } from '../policy/permit.ts'
import { type Child, type ChildInit, startChild } from './child.ts'
import { commandLimit } from './open-files.ts'
import { posixSpawn } from './posix-spawn.ts'
import { MARK_VARIABLE } from './run-mark.ts'
import { type SandboxPlan, planSandbox } from './sandbox/bubblewrap.ts'
import { isOneFile } from './native-modules.ts'
import { PTY_PACKAGE } from './terminal.ts'

/** Whether the sources or a bundle run. Evaluated on demand, because the CLI's bundle has no URL and needs no terminals. */
const placeOf = (): { readonly fromSources: boolean; readonly host: string } => {
  const fromSources = import.meta.url.endsWith('.ts')
  return { fromSources, host: fileURLToPath(new URL(fromSources ? './terminal-main.ts' : './terminal-host.cjs', import.meta.url)) }
}

/**
 * Words before a program that start a process that holds its terminal. `control` is the descriptor that carries sizes
 * and, before them, the environment of a program on a raw terminal.
 */
export const terminalWords = ({ cols, rows, raw = false }: Terminal, control: number): string[] => {
  const { fromSources, host } = placeOf()
  // A main module has no effect when it is imported. A bundle calls its `main`.
  const text = `import { main } from ${JSON.stringify(host)}; process.exit(await main(process.argv.slice(1)))`
  const program = fromSources ? ['--input-type=module', '--eval', text, '--'] : [host]
  return [process.execPath, ...program, raw ? 'raw' : 'cooked', String(control), String(cols), String(rows)]
}

/** Files that the holder process reads besides the system's files. They are the runtime, its program and the native module. */
export const terminalFiles = (): string[] => {
  const { fromSources, host } = placeOf()
  // A single-file program contains them.
  if (isOneFile()) return [process.execPath]
  const packages = attempt(() => dirname(dirname(createRequire(import.meta.url).resolve(`${PTY_PACKAGE}/requireBinary.js`))))
  const root = fileURLToPath(new URL('../..', import.meta.url))
  const program = fromSources ? [join(root, 'src'), join(root, 'package.json')] : [host]
  return [process.execPath, ...program, ...(packages === null ? [] : [packages])]
}

/** Seconds of processor time between SIGXCPU at `max_cpu_secs` and SIGKILL. */
const CPU_KILL_LEAD_SECS = 1

/** System programs that confine or hold another program. */
export const SYSTEM_TOOLS = { bwrap: 'bubblewrap', prlimit: 'util-linux', nice: 'coreutils' } as const
export type SystemTool = keyof typeof SYSTEM_TOOLS

export type ToolLookup = { readonly path: string } | { readonly problem: string }

/** Looks a tool up each time. A file that others could replace is not accepted. */
export const findTool = (name: SystemTool): ToolLookup => {
  const lookup = findExecutable(name)
  if (lookup.kind === 'found') return { path: lookup.executable.path }
  return { problem: lookup.kind === 'missing' ? `${name} is not installed (package ${SYSTEM_TOOLS[name]})` : lookup.detail }
}

/** Descriptor on which bwrap reports status. */
const STATUS_DESCRIPTOR = 3

/** Options of bwrap. The program follows. Everything of the host stays visible except what the ACL entry takes away. */
export const namespaceArguments = ({ no_network, read_only }: Pick<Confinement, 'no_network' | 'read_only'>, cwd: string): string[] => [
  '--die-with-parent',
  '--unshare-pid',
  '--new-session',
  ...(no_network ? ['--unshare-net'] : []),
  // A private /dev, because the real one has writable places.
  ...(read_only ? ['--ro-bind', '/', '/', '--dev', '/dev'] : ['--dev-bind', '/', '/']),
  '--proc',
  '/proc',
  // With its capabilities, root could undo either.
  ...(no_network || read_only ? ['--cap-drop', 'ALL'] : []),
  '--chdir',
  cwd,
  '--json-status-fd',
  String(STATUS_DESCRIPTOR),
  '--',
]

/** The program to spawn, which may be a wrapper of the run's program. */
export interface LaunchPlan {
  readonly file: string
  readonly args: readonly string[]
  /** Another program starts it, so a failed start is harder to recognize. */
  readonly isWrapped: boolean
  readonly inNamespace: boolean
  /** Terminal that this process holds, or null. */
  readonly ownTerminal: Terminal | null
  /** Descriptor of the terminal's holder for sizes, or null without a holder. */
  readonly control: number | null
  readonly sandbox: SandboxPlan | null
}

const wrappersOf = ({ nice, max_cpu_secs }: Confinement): [SystemTool, string[]][] => [
  ...(nice === null ? [] : [['nice', ['-n', String(nice)]] satisfies [SystemTool, string[]]]),
  ...(max_cpu_secs === null
    ? []
    : [['prlimit', [`--cpu=${max_cpu_secs}:${max_cpu_secs + CPU_KILL_LEAD_SECS}`, '--']] satisfies [SystemTool, string[]]]),
]

/** Tools that these limits need. */
export const toolsFor = (confinement: Confinement): { key: keyof Confinement; tool: SystemTool }[] => [
  ...(confinement.nice === null ? [] : [{ key: 'nice', tool: 'nice' } as const]),
  ...(confinement.max_cpu_secs === null ? [] : [{ key: 'max_cpu_secs', tool: 'prlimit' } as const]),
]

interface Planned extends Pick<
  Permit,
  'argv' | 'executable' | 'cwd' | 'cwd_descriptor' | 'env' | 'confinement' | 'terminal' | 'sandbox' | 'account'
> {
  /** Private copies that a sandbox shows, or absent without copies. */
  readonly copies?: readonly string[]
}

/** Words that give a command its soft limit of open files. They follow the holder of a terminal, which raises its own limit. */
const openFilesWords = (hasTerminal: boolean): string[] => {
  const limit = commandLimit()
  const tool = limit === null || (limit.isInherited && !hasTerminal) ? null : findTool('prlimit')
  return limit === null || tool === null || 'problem' in tool ? [] : [tool.path, `--nofile=${limit.soft}:`, '--']
}

/** Words of bwrap, and the plan of a sandbox. */
const namespaceWords = (
  permit: Planned,
  userNamespace: boolean,
): { readonly words: readonly string[]; readonly sandbox: SandboxPlan | null } | { readonly problem: string } => {
  const { sandbox, cwd, cwd_descriptor, confinement, terminal, copies = [] } = permit
  if (sandbox !== null) {
    const first = STATUS_DESCRIPTOR + (terminal === null ? 1 : 2)
    const plan = planSandbox(permit, sandbox, { first, userNamespace, shown: [...(terminal === null ? [] : terminalFiles()), ...copies] })
    return 'problem' in plan ? plan : { words: [...plan.words, '--json-status-fd', String(STATUS_DESCRIPTOR), '--'], sandbox: plan.sandbox }
  }
  // bwrap enters the directory by its path, which may have changed.
  if (cwd_descriptor !== null) return { problem: 'a directory that is held open cannot be kept in a namespace' }
  return { words: namespaceArguments(confinement, cwd), sandbox: null }
}

/**
 * True if this process can hold the program's terminal. A namespace has private terminals, so their holder runs in it. Node.js cannot open a
 * terminal, and it starts the programs of other users.
 */
const canHoldTerminal = (posix: ReturnType<typeof posixSpawn>, { account }: Planned, inNamespace: boolean): boolean =>
  account === null && !inNamespace && !('problem' in posix)

/** Plans how to start a program, directly or through confining tools. Returns a missing tool by name. */
export const planLaunch = (
  permit: Planned,
  namespaceForAll: boolean,
  userNamespace = true,
  posix = posixSpawn(),
): LaunchPlan | { readonly problem: string } => {
  const { argv, executable, confinement } = permit
  const inNamespace = namespaceForAll || needsNamespace(confinement) || permit.sandbox !== null
  const ownTerminal = canHoldTerminal(posix, permit, inNamespace) ? permit.terminal : null
  const terminal = ownTerminal === null ? permit.terminal : null
  const wrappers = wrappersOf(confinement)
  const namespace = inNamespace ? namespaceWords(permit, userNamespace) : { words: [], sandbox: null }
  if ('problem' in namespace) return namespace
  if (inNamespace) wrappers.push(['bwrap', [...namespace.words]])
  const words = terminal === null ? openFilesWords(false) : []
  for (const [tool, args] of wrappers) {
    const lookup = findTool(tool)
    if ('problem' in lookup) return lookup
    words.push(lookup.path, ...args)
  }
  const control = terminal === null ? null : inNamespace ? STATUS_DESCRIPTOR + 1 : STATUS_DESCRIPTOR
  if (terminal !== null && control !== null) words.push(...terminalWords(terminal, control), ...openFilesWords(true))
  const [file = executable.path, ...args] = [...words, executable.path, ...argv.slice(1)]
  return { file, args, isWrapped: words.length > 0, inNamespace, ownTerminal, control, sandbox: namespace.sandbox }
}

/** A held directory is used by its descriptor, because its path may have changed. */
export const directoryOf = ({ cwd, cwd_descriptor }: Pick<Permit, 'cwd' | 'cwd_descriptor'>): string =>
  cwd_descriptor === null ? cwd : `/proc/self/fd/${cwd_descriptor}`

/** A child inherits the umask, which all threads of this process share, so `start` must be synchronous. */
const withUmask = <T>(umask: number, start: () => T): T => {
  const own = process.umask(umask)
  try {
    return start()
  } finally {
    process.umask(own)
  }
}

/** Starts at once, in a new session, without a shell, and with only the standard descriptors and bwrap's. Throws or rejects as `startChild`. */
export const launch = (
  plan: LaunchPlan,
  permit: Pick<Permit, 'argv' | 'cwd' | 'cwd_descriptor' | 'env' | 'account' | 'terminal' | 'confinement'>,
  { stdin, mark }: { readonly stdin: boolean; readonly mark: string | null },
): Child | Promise<Child> => {
  const { argv, account } = permit
  const marked = mark === null ? {} : { [MARK_VARIABLE]: mark }
  const env = { ...permit.env, ...marked }
  const extra = [plan.inNamespace, plan.control !== null, ...(plan.sandbox === null ? [] : [true, true, true])]
  // A wrapper has its own name. A program has the name in argv.
  const argv0 = plan.isWrapped ? plan.file : (argv[0] ?? plan.file)
  const isHeldRaw = plan.control !== null && permit.terminal?.raw === true
  const init: ChildInit = {
    file: plan.file,
    argv: [argv0, ...plan.args],
    // A raw terminal's holder and the setup of a sandbox must not obey variables that are meant for the program.
    env: plan.sandbox !== null ? {} : isHeldRaw ? marked : env,
    cwd: directoryOf(permit),
    stdin,
    descriptors: 3 + extra.filter(Boolean).length,
    terminal: plan.ownTerminal,
    account,
  }
  const child = withUmask(umaskOf(permit.confinement), () => startChild(init))
  if (child instanceof Promise) return child
  if (isHeldRaw && plan.control !== null) feed(child, plan.control)?.write(`${JSON.stringify(env)}\n`)
  for (const { descriptor, bytes } of plan.sandbox?.feeds ?? []) feed(child, descriptor)?.end(bytes)
  return child
}

/** Our end of a pipe to the child, which may end before it reads. */
export const feed = ({ stdio }: Child, descriptor: number): Writable | null => stdio[descriptor]?.on('error', () => undefined) ?? null
