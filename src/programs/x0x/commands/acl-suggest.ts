import type { DenialEvent } from '../../../audit/events.ts'
import { parseLine } from '../../../audit/parse-line.ts'
import { tailJournal } from '../../../audit/tail.ts'
import { AppError } from '../../../base/errors.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { entryText, suggestionWarnings, unsuggestable } from '../../../policy/mesh/suggest.ts'
import type { DenialReason } from '../../../protocol/reasons.ts'
import { write } from '../../../supervision/program-output.ts'
import type { CliContext } from '../context.ts'
import { printJson } from '../print.ts'
import { runningJournal } from './audit.ts'

export interface SuggestOptions {
  /** Only this denial; null: the last that an entry could have prevented. */
  readonly request: string | null
  /** Only denials of this agent: a contact, an id, or how it begins. */
  readonly agent: string | null
}

/** How far back is looked. */
const LINES = 100_000

/** What an entry of the file would change. */
const ABOUT_THE_FILE: readonly DenialReason[] = ['argv_not_allowed', 'agent_machine_not_in_acl', 'detach_not_allowed']

interface Known {
  readonly name: string
  readonly agent_id: string
}

const lastDenial = async (path: string, wanted: (denial: DenialEvent) => boolean): Promise<DenialEvent> => {
  let last: DenialEvent | null = null
  for await (const text of tailJournal(path, { lines: LINES, follow: false })) {
    const line = parseLine(Buffer.from(text))
    if (line?.event === 'denial' && wanted(line)) last = line
  }
  if (last !== null) return last
  throw new AppError('not_found', `no such denial is among the last lines of ${path}`, {
    data: { next: 'see them with: x0x audit tail --lines 1000' },
  })
}

/** Throws why an entry would not help. */
const assertHelps = ({ reason, argv, argv_cut, detail }: DenialEvent): void => {
  // Another entry of the pair would come behind the one that has the command already.
  if (reason === 'detach_not_allowed')
    throw new AppError('conflict', `the entry is there, and does not let it outlive its caller: ${detail ?? reason}`, {
      data: { next: 'write detach = true into the entry that x0x acl explain --detach names, and max_detach_output_bytes for more output' },
    })
  if (!ABOUT_THE_FILE.includes(reason))
    throw new AppError('conflict', `it was denied for ${reason}, which no entry of the ACL changes`, {
      data: { next: 'docs/errors.md says what does' },
    })
  const problem = argv_cut === undefined ? unsuggestable(argv) : 'the journal has its beginning only'
  if (problem !== null) throw new AppError('conflict', `no entry can allow exactly this: ${problem}`)
}

/** `x0x acl suggest`: prints an entry for the operator to look at and to paste; changes nothing. */
export const runAclSuggest = async (context: CliContext, { request, agent }: SuggestOptions): Promise<number> => {
  const { contacts } = await context.api.json<{ contacts: readonly Known[] }>({ method: 'GET', path: '/contacts' })
  const known = contacts.find(({ name }) => name === agent)?.agent_id ?? agent
  const path = await runningJournal(context, 'x0x audit tail', false)
  const denial = await lastDenial(
    path,
    ({ request_id, agent_id, reason }) =>
      (known === null || agent_id.startsWith(known)) && (request === null ? ABOUT_THE_FILE.includes(reason) : request_id === request),
  )
  assertHelps(denial)
  const { agent_id, machine_id, argv, request_id } = denial
  const description = contacts.find((one) => one.agent_id === agent_id)?.name ?? `agent ${agent_id.slice(0, 8)}`
  const toml = entryText({ agent_id, machine_id, description }, argv)
  const warnings = suggestionWarnings(argv)
  if (context.json) {
    await printJson(context, { ok: true, request_id, agent_id, machine_id, argv, toml, warnings })
    return 0
  }
  for (const warning of warnings) await write(context.stderr, `x0x: careful: ${shownLine(warning)}\n`)
  await write(context.stdout, toml)
  return 0
}
