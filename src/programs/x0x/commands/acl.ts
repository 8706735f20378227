import { counted } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { notInForceLines, signingHere } from '../../../doctor/loaded-acl.ts'
import { successorDoubts } from '../../../doctor/mesh-check.ts'
import { type AclSignatureRule, signedBy } from '../../../policy/mesh/accepted-acl.ts'
import { type AclCheck, checkAclFile } from '../../../policy/mesh/check-acl.ts'
import type { EnforcementProbe } from '../../../policy/mesh/confinement.ts'
import { ProcessTrees } from '../../../process/process-trees.ts'
import { isHexId } from '../../../protocol/ids.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { painter, printJson, printLine } from '../print.ts'
import { aclInForceHere } from './last-denial.ts'

/** Checks a file, and tries the containment that entries require, if any does. */
export const checkHere = async (file: string, dataDir: string, signing: AclSignatureRule | null = null): Promise<AclCheck> => {
  let trees: ProcessTrees | null = null
  const judge: EnforcementProbe = async (confinement) => {
    trees ??= await ProcessTrees.open({ cleanup: null, log: { warn: () => undefined } }, { choice: 'auto', dataDir: null })
    return trees.judge(confinement)
  }
  try {
    return await checkAclFile(file, judge, { dataDir, signing })
  } finally {
    await (trees as ProcessTrees | null)?.stop()
  }
}

/** The numbers of entries; approvals are only mentioned if there are any. */
const countsText = (summary: AclCheck['summary']): string => {
  const { asking_entry_count, ask_pattern_count, always_ask_count, approver_count, approvals_needed } = summary
  const asking = [
    [asking_entry_count, counted(asking_entry_count, 'entry with approval', 'entries with approval')],
    [ask_pattern_count, counted(ask_pattern_count, 'ask pattern')],
    [always_ask_count, counted(always_ask_count, 'rule that always asks', 'rules that always ask')],
    [approver_count, `${counted(approver_count, 'approver')}, up to ${approvals_needed} needed`],
  ] as const
  return [
    counted(summary.allow_entry_count, 'allow entry', 'allow entries'),
    counted(summary.command_entry_count, 'command'),
    ...(summary.files_entry_count === 0 ? [] : [`${counted(summary.files_entry_count, 'root')} of files`]),
    ...asking.flatMap(([count, text]) => (count === 0 ? [] : [text])),
  ].join(', ')
}

const signersOf = (line: CommandLine): readonly string[] => {
  const signers = line.values('signer')
  const wrong = signers.find((id) => !isHexId(id))
  if (wrong === undefined) return signers
  throw usageError(
    `--signer: ${JSON.stringify(wrong)} is not an id of 64 lower-case hex characters`,
    'x0x id on the machine that signs prints it',
  )
}

/** The rules of --signer, and of the daemon for its ACL. */
const signingOf = async (context: CliContext, line: CommandLine): Promise<AclSignatureRule> => {
  const signers = signersOf(line)
  const own = await signingHere(context.api, line.words[0] ?? null, context)
  const rules = [own, signers.length === 0 ? null : signedBy(signers)]
  return { problem: (signature) => rules.map((rule) => rule?.problem(signature) ?? null).find((problem) => problem !== null) ?? null }
}

/** `x0x acl check [FILE]`: 0 if a daemon would start with it, otherwise 2. */
export const runAclCheck = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [named = null] = line.words
  const signing = await signingOf(context, line)
  const inForce = named === null ? await aclInForceHere(context) : null
  const file = named ?? inForce!.file
  const { paths } = context.api
  const [checked, successors] = [await checkHere(file, paths.dir, signing), await successorDoubts(file, paths.contacts)]
  const report = { ...checked, warnings: [...checked.warnings, ...successors.map(({ text, remedy }) => `${text}; ${remedy}`)] }
  const status = report.ok ? 0 : 2
  if (context.json) {
    await printJson(context, { ...report, ...(inForce !== null && { not_in_force: inForce.difference }) })
    return status
  }
  const paint = painter(context.stdout, context.env)
  for (const problem of report.problems) await printLine(context, `${paint('red', 'problem')}  ${shownLine(problem)}`)
  for (const warning of report.warnings) await printLine(context, `${paint('yellow', 'warning')}  ${shownLine(warning)}`)
  await printLine(
    context,
    report.ok
      ? `${paint('green', 'ok')}       ${shownLine(file)}: ${countsText(report.summary)}`
      : `${paint('red', 'refused')}  x0xd cannot use ${shownLine(file)}`,
  )
  const { signature } = report
  if (signature !== null) await printLine(context, `${paint('dim', 'signed')}   version ${signature.version}, by agent ${signature.signer}`)
  if (report.ok && !report.summary.enabled)
    await printLine(context, `${paint('yellow', 'off')}      exec is off: the file has no [exec] with enabled = true, so no command runs`)
  if (inForce !== null && inForce.difference !== null)
    await printLine(context, `${paint('yellow', 'warning')}  ${shownLine(notInForceLines(inForce).join('; '))}`)
  return status
}
