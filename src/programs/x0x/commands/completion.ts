import { shownLine } from '../../../base/visible-text.ts'
import type { DaemonWords } from '../../../cli/command.ts'
import { COMPLETION_SCRIPTS, type CompletionCandidate, type Completions, SHELLS, completions } from '../../../cli/completion.ts'
import { PAGES, manualPage, referencePage } from '../../../cli/man.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { LocalApi } from '../../../clients/daemon.ts'
import { machinesOf } from '../../../clients/machines.ts'
import { instanceChoice } from '../../../clients/paths.ts'
import type { ContactRecord, ContactsAnswer, PeersAnswer, RunSession } from '../../../protocol/api-answers.ts'
import type { DetachedRunView } from '../../../protocol/api/detached-run.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'

/** Timeout of a completion. A busy daemon is not waited for. */
const PATIENCE_MS = 500
/** Limit on candidates. */
const MAX_ASKED = 200

/** The daemon that the flags of a line select. */
const apiOf = ({ env }: CliContext, line: readonly string[]): LocalApi => {
  const flag = (name: string): string | null => {
    const at = line.findLastIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`))
    return at === -1 ? null : line[at]!.includes('=') ? line[at]!.slice(name.length + 3) : (line[at + 1] ?? null)
  }
  const instance = instanceChoice({ name: flag('name'), dataDir: flag('data-dir') }, env)
  return new LocalApi({ instance, url: flag('api') ?? env['X0X_API'] ?? null, env })
}

type Get = <T>(path: string) => Promise<T>

const contactsOf = async (get: Get): Promise<readonly ContactRecord[]> => (await get<ContactsAnswer>('/contacts')).contacts
const peersOf = async (get: Get): Promise<PeersAnswer['peers']> => (await get<PeersAnswer>('/peers')).peers

const contactWords = (contacts: readonly ContactRecord[]): CompletionCandidate[] => contacts.map(({ name, trust }) => [name, trust])

/** Agents that the daemon has heard of and that are not contacts, by ID. */
const unlistedWords = async (get: Get, contacts: readonly ContactRecord[]): Promise<CompletionCandidate[]> => {
  const named = new Set(contacts.map(({ agent_id }) => agent_id))
  return (await peersOf(get)).flatMap(({ agent_id, name }): CompletionCandidate[] =>
    agent_id === null || named.has(agent_id) ? [] : [[agent_id, name ?? '']],
  )
}

/** Contacts by name, other agents by ID. */
const agentWords = async (get: Get): Promise<CompletionCandidate[]> => {
  const contacts = await contactsOf(get)
  return [...contactWords(contacts), ...(await unlistedWords(get, contacts))]
}

/** Machines of the agent in the previous word; all machines for an unknown agent. */
const machineWords = async (get: Get, agent: string): Promise<CompletionCandidate[]> => {
  const [contacts, peers] = await Promise.all([contactsOf(get), peersOf(get)])
  return machinesOf(agent, contacts, peers).map(({ machine_id, name }) => [machine_id, name ?? ''])
}

/** Completes the host after the last comma or "!": names, groups, labels and IDs. */
const hostWords = async (get: Get, begun: string): Promise<CompletionCandidate[]> => {
  const { contacts, groups } = await get<ContactsAnswer>('/contacts')
  const labels = contacts.flatMap(({ labels: some }) =>
    Object.entries(some).map(([key, value]): CompletionCandidate => [`${key}=${value}`, 'label']),
  )
  const groupWords = groups.map(({ name, words }): CompletionCandidate => [`@${name}`, words.join(' ')])
  const all = [...contactWords(contacts), ...groupWords, ...labels, ...(await unlistedWords(get, contacts))]
  const done = /^(?:.*,)?!?/su.exec(begun)![0]
  return all.map(([word, text]) => [`${done}${word}`, text])
}

const runWords = async (get: Get): Promise<CompletionCandidate[]> =>
  (await get<{ readonly sessions: readonly RunSession[] }>('/exec/sessions')).sessions.map(({ request_id, argv }) => [
    request_id,
    argv.join(' '),
  ])

const detachedWords = async (get: Get): Promise<CompletionCandidate[]> =>
  (await get<{ readonly runs: readonly DetachedRunView[] }>('/runs')).runs
    .toReversed()
    .map(({ request_id, state, argv }) => [request_id, `${state}: ${argv.join(' ')}`])

const ASK: Readonly<Record<DaemonWords, (get: Get, found: Completions) => Promise<CompletionCandidate[]>>> = {
  agents: agentWords,
  contacts: async (get) => contactWords(await contactsOf(get)),
  hosts: async (get, { begun }) => hostWords(get, begun),
  machines: async (get, { before }) => machineWords(get, before.at(-1) ?? ''),
  runs: runWords,
  detached: detachedWords,
}

/** Candidates from the daemon. Errors give none, silently, because this runs at each key press. */
const askedWords = async (
  context: CliContext,
  line: readonly string[],
  completed: Completions,
): Promise<readonly CompletionCandidate[]> => {
  const { asked, begun } = completed
  if (asked === null) return []
  try {
    const api = apiOf(context, line)
    const signal = AbortSignal.timeout(PATIENCE_MS)
    const found = await ASK[asked](async (path) => api.json({ method: 'GET', path, signal }), completed)
    const unique = [...new Map(found.toReversed())].toReversed()
    return unique.filter(([word]) => word.startsWith(begun) && /^[\w.,:!@=/+[\]-]+$/.test(word)).slice(0, MAX_ASKED)
  } catch {
    return []
  }
}

/** A foreign name must not end its line or start another column. */
const lineOf = ([word, text]: CompletionCandidate): string => `${word}\t${shownLine(text).replaceAll(/[\t:]/g, ' ')}\n`

/** `x0x completion SHELL`, and `x0x completion words -- LINE...`, which the scripts of all shells call. */
export const runCompletion = async (context: CliContext, { words: [what = ''], behindDashes }: CommandLine): Promise<number> => {
  const shell = SHELLS.find((name) => name === what)
  if (shell === undefined && what !== 'words') throw usageError(`unknown shell ${JSON.stringify(what)}`, `Use one of ${SHELLS.join(', ')}`)
  if (shell !== undefined) {
    await write(context.stdout, COMPLETION_SCRIPTS[shell])
    return 0
  }
  const line = behindDashes ?? []
  const found = completions(Object.values(PAGES).flat(), line)
  await write(context.stdout, [...found.candidates, ...(await askedWords(context, line, found))].map(lineOf).join(''))
  return 0
}

export const runMan = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [program = 'x0x'] = line.words
  const parts = Object.hasOwn(PAGES, program) ? PAGES[program] : undefined
  if (parts === undefined) throw usageError(`${JSON.stringify(program)} has no manual page`, `Use one of ${Object.keys(PAGES).join(', ')}`)
  await write(context.stdout, line.has('markdown') ? referencePage(Object.values(PAGES).flat()) : manualPage(parts))
  return 0
}
