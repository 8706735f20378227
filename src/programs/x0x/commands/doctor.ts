import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { type Finding, findingsText, isWell, warn } from '../../../doctor/findings.ts'
import { aclInForce } from '../../../doctor/loaded-acl.ts'
import { relationFindings } from '../../../doctor/relation.ts'
import type { CliContext } from '../context.ts'
import { carriedCommand } from '../failure.ts'
import { printAnswer } from '../print.ts'

/** Only the daemon of this data directory has its ACL file on this machine. */
const aclFindings = async ({ api, instance, env }: CliContext): Promise<Finding[]> => {
  if (!api.isOwn) return []
  const { difference, remedy } = await aclInForce(api, instance, env)
  return difference === null ? [] : [warn('local ACL', `not in force: ${difference}`, remedy)]
}

/** `x0x doctor AGENT`: 0, or 1 if a check fails. */
export const runDoctor = async (context: CliContext, line: CommandLine): Promise<number> => {
  const question = { agent: line.words[0] ?? '', argv: line.behindDashes === null ? null : carriedCommand(line, 1) }
  const findings = [...(await relationFindings(context.api, question)), ...(await aclFindings(context))]
  const shown = findings.map((finding) => ({
    ...finding,
    text: shownLine(finding.text),
    remedy: finding.remedy && shownLine(finding.remedy),
  }))
  await printAnswer(context, { ok: isWell(findings), findings }, async () => write(context.stdout, findingsText(shown, context.given)))
  return isWell(findings) ? 0 : 1
}
