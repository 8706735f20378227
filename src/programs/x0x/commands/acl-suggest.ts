import { AppError } from '../../../base/errors.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { type AclBesideDaemon, notInForceLines } from '../../../doctor/loaded-acl.ts'
import type { DenialEvent } from '../../../journal/events.ts'
import { explain } from '../../../policy/mesh/explain.ts'
import { inspectAcl } from '../../../policy/mesh/load-acl.ts'
import { entryText, suggestionWarnings, unsuggestable } from '../../../policy/mesh/suggest.ts'
import type { DenialReason } from '../../../protocol/reasons.ts'
import type { CliContext } from '../context.ts'
import { printJson } from '../print.ts'
import { aclInForceHere, lastDenial } from './last-denial.ts'

/** Denials that an ACL entry would change. */
export const ABOUT_THE_ACL: readonly DenialReason[] = [
  'argv_not_allowed',
  'agent_machine_not_in_acl',
  'detach_not_allowed',
  'terminal_not_allowed',
]

/** Throws the reason if an entry would not help. */
const assertHelps = ({ reason, argv, argv_cut, detail }: DenialEvent): void => {
  // A second entry of the pair would come after the one that already has the command.
  if (reason === 'detach_not_allowed')
    throw new AppError('conflict', `the entry exists, and does not allow a detached run: ${detail ?? reason}`, {
      data: { next: 'Add detach = true to the entry (see x0x acl explain --detach), and max_detach_output_bytes for more output' },
    })
  if (reason === 'terminal_not_allowed')
    throw new AppError('conflict', `the entry exists, and does not allow a terminal: ${detail ?? reason}`, {
      data: { next: 'Add terminal = true to its command, and record = true to keep what it shows (see x0x acl explain --terminal)' },
    })
  if (!ABOUT_THE_ACL.includes(reason))
    throw new AppError('conflict', `it was denied for ${reason}, which no entry of the ACL changes`, {
      data: { next: 'see docs/errors.md' },
    })
  const problem = argv_cut === undefined ? unsuggestable(argv) : 'the audit log has only its beginning'
  if (problem !== null) throw new AppError('conflict', `no entry can allow exactly this: ${problem}`)
}

/** Throws if the file already has such an entry, because a second one would change nothing. */
const assertNew = async (acl: AclBesideDaemon, { agent_id, machine_id, argv }: DenialEvent): Promise<void> => {
  const { acl: read } = await inspectAcl(acl.file)
  const explanation = read === null ? null : explain({ acl: read, agent_id, machine_id, argv })
  const matched = explanation?.matched ?? explanation?.grant ?? null
  if (matched === null) return
  const [difference = 'it is in force, so this denial no longer happens', ...next] = notInForceLines(acl)
  throw new AppError('conflict', `${acl.file}:${matched.line} already has this command: ${difference}`, {
    data: { next: next.join('\n') },
  })
}

/** `x0x acl suggest`: prints an entry for the operator to review and paste. Changes nothing. */
export const runAclSuggest = async (context: CliContext, given: CommandLine): Promise<number> => {
  const choice = { request: given.value('request'), agent: given.value('agent') }
  const acl = await aclInForceHere(context)
  const { denial, name } = await lastDenial(context, acl, choice, ({ reason }) => ABOUT_THE_ACL.includes(reason))
  assertHelps(denial)
  await assertNew(acl, denial)
  const { agent_id, machine_id, argv, request_id } = denial
  const toml = entryText({ agent_id, machine_id, description: name ?? `agent ${agent_id.slice(0, 8)}` }, argv)
  const warnings = suggestionWarnings(argv)
  if (context.json) {
    await printJson(context, { ok: true, request_id, agent_id, machine_id, argv, toml, warnings })
    return 0
  }
  for (const line of notInForceLines(acl)) await write(context.stderr, `x0x: ${shownLine(line)}\n`)
  for (const warning of warnings) await write(context.stderr, `x0x: careful: ${shownLine(warning)}\n`)
  await write(context.stdout, toml)
  return 0
}
