import { readdir } from 'node:fs/promises'
import { LAYERS } from '../../test/support/house-rules.ts'
import { code, table } from './table.ts'

/** Responsibility of each folder of `src`, and what it must not do. A folder imports only those above it. */
const FOLDERS: Readonly<Record<string, readonly [owns: string, limit: string]>> = {
  base: ['errors, files, clock, log, start and stop', 'independent of x0x'],
  protocol: ['messages, shared limits and reason codes', 'pure: no disk, clock or socket'],
  'executor-api': ['the messages between the two processes, and their client', 'imports only `base` and `protocol`'],
  web: ['the page that a browser runs', 'imports only the protocol and the display of text'],
  sdk: ['the library `x0x/client`', 'imports only `protocol`'],
  identity: ['keys, signatures, cards, encryption', 'holds no rule'],
  trust: ['contacts, pins, revocations', 'does not read the ACL'],
  policy: ['the ACL, execution modes and `authorize`', 'starts no program'],
  journal: ['audit log, request log and approval log', 'holds no output'],
  transcripts: ['transcripts of consoles, recordings of terminals', 'the audit log has the hash of a recording'],
  desk: ['approval requests, the store of approvals, the socket for both', 'policy judges each request'],
  process: ['programs, their terminals and process trees', 'accepts only a permit'],
  fs: ['files below roots, through open descriptors', 'checks each link that it follows'],
  executor: ['verifies, decides, runs and records', 'has no network'],
  mesh: ['libp2p', 'sees no unsealed message'],
  links: ['links, streams, sealing, dispatch', 'holds no rule'],
  exec: ['runs of the requester; carries runs of peers', 'holds no rule'],
  doors: ['the servers of the interfaces: REST, REXD, MCP, consoles, page', 'hold no rule'],
  clients: ['clients of the services of this machine, and the paths of their sockets', 'the servers in `doors` do not import it'],
  config: ['configuration of `x0xd` and `rexd`', 'starts no process'],
  cli: ['one table of commands per program; parsing, help, completion', 'runs no command'],
  supervision: ['locks, pid files, start of the network process and of REXD', 'holds no rule'],
  doctor: ['`--check` and `--doctor`', 'read-only'],
  programs: ['one folder per program', 'imports no other program'],
}

/** Purpose of each folder of `src/programs`. */
const PROGRAMS: Readonly<Record<string, string>> = {
  x0x: 'the command line; loads neither libp2p nor fastify nor zod',
  x0xd: 'the daemon: the executor process, which starts the others',
  'x0xd-network': 'the network process',
  rexd: 'REXD over standard streams, HTTP and WebSocket, and `rexd exec`',
  mcp: 'tools for AI agents over standard streams',
  ui: 'the server of the page',
  bundle: '`x0x bundle`: files for a support request, without a secret',
  desk: '`x0x desk`: the approval service on a machine without a daemon',
  console: 'the console',
  rexec: 'the client of a console, and the reader of transcripts',
  'rexec-mcp': 'the same, as tools for AI agents',
}

/** Throws unless both lists have the same names. */
const demandSame = (what: string, described: readonly string[], present: readonly string[]): void => {
  if (described.join(' ') !== present.join(' '))
    throw new Error(`${what}: described are ${described.join(' ')}; present are ${present.join(' ')}`)
}

/** The folders of `src`, in the order in which they may import each other. */
export const folders = (): string => {
  demandSame('folders of src', Object.keys(FOLDERS), LAYERS)
  return table(
    ['folder', 'owns', 'limit'],
    Object.entries(FOLDERS).map(([name, [owns, limit]]) => [code(name), owns, limit]),
  )
}

export const programs = async (): Promise<string> => {
  demandSame(
    'folders of src/programs',
    Object.keys(PROGRAMS).toSorted(),
    (await readdir(new URL('../../src/programs', import.meta.url))).toSorted(),
  )
  return table(
    ['program', 'what it is'],
    Object.entries(PROGRAMS).map(([name, text]) => [code(name), text]),
  )
}
