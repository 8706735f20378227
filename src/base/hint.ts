import { shellWords } from './format.ts'

/** Options of a command line that a hint about it needs too. */
export interface GivenOptions {
  readonly program: string
  readonly options: readonly (readonly [name: string, value: string])[]
}

export const NONE_GIVEN: GivenOptions = { program: '', options: [] }

/** They say which daemon is meant, to each program that takes them. */
const INSTANCE = ['name', 'data-dir']
/** They mean something to the same program alone. */
const OWN = ['api', 'config', 'exec-acl']
/** They find the daemon by their configuration or their environment. */
const WITHOUT_INSTANCE = ['x0x mcp', 'x0x rexd', 'x0x console', 'rexd', 'rexec']

const COMMAND =
  /(?<=\b(?:Try|[Nn]ext|its output|whether it started|end one|what (?:goes on|runs here for others)|to rename it|what is wrong|ask again where it certainly did not run|it may run twice|how they are|until all are over): |-> |&& )(?:x0x (?:ui|desk|bundle|mcp|rexd|console)|x0xd?|rexd|rexec)(?= )/g

export const givenOptions = (
  program: string,
  line: { readonly has: (name: string) => boolean; readonly value: (name: string) => string | null },
): GivenOptions => ({
  program,
  options: [...INSTANCE, ...OWN].flatMap((name) => (line.has(name) ? [[name, line.value(name) ?? ''] as const] : [])),
})

/** A hint whose commands, on this machine, have the options that its reader gave: they can be pasted. */
export const pasteable = (hint: string, { program, options }: GivenOptions): string =>
  hint.replaceAll(COMMAND, (called, at: number) => {
    const [command = ''] = hint.slice(at).split(' && ')
    const isTaken = (name: string): boolean => called === program || (INSTANCE.includes(name) && !WITHOUT_INSTANCE.includes(called))
    const missing = options.filter(([name]) => isTaken(name) && !command.includes(` --${name} `))
    return [called, ...missing.map(([name, value]) => shellWords([`--${name}`, value]))].join(' ')
  })
