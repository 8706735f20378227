import { AppError, isAppError } from '../../../base/errors.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { Acl } from '../../../policy/mesh/acl.ts'
import { type AclComparison, type Beyond, compareAcl } from '../../../policy/mesh/compare-acl.ts'
import { inspectAcl } from '../../../policy/mesh/load-acl.ts'
import { quoteArgv } from '../../../policy/tokens.ts'
import type { CliContext } from '../context.ts'
import { painter, printAnswer, printLine } from '../print.ts'
import { aclInForceHere } from './last-denial.ts'

/** Exit statuses that differ from those of failures. */
const STATUS = { equal: 0, narrows: 3, widens: 4 } as const

const WORDS: Readonly<Record<AclComparison['verdict'], string>> = {
  equal: 'equal    they allow the same',
  narrows: 'narrows  the new one allows less: a reload is enough',
  widens: 'widens   the new one may allow more: restart x0xd',
}

/** Reads a file. Throws `bad_acl` with all problems. Whether this host can enforce it is the daemon's check. */
const readAclFile = async (file: string): Promise<Acl> => {
  const { acl, problems } = await inspectAcl(file, null, { pipes: true })
  if (problems.length > 0) throw new AppError('bad_acl', problems.join('\n'), { data: { file, problems } })
  if (acl === null) throw new AppError('bad_acl', `${file}: has no [exec]`, { data: { file } })
  return acl
}

/** The ACL in force. Without a copy, the daemon has loaded none. */
const loadedAcl = async (context: CliContext): Promise<Acl> => {
  await context.api.json({ method: 'GET', path: '/agent' })
  const path = context.api.paths.loadedAcl
  try {
    // The daemon made the copy, and checks who may write its directory.
    return await readAclFile(path)
  } catch (error) {
    if (!isAppError(error, 'bad_acl')) throw error
    throw new AppError('not_found', `this user cannot read the ACL of the running daemon (${path})`, {
      cause: error,
      data: { next: 'Try: x0x acl diff OLD NEW' },
    })
  }
}

/** `x0x acl diff [[OLD] NEW]`. Without a file, compares the loaded ACL with its file. */
export const runAclDiff = async (context: CliContext, { words }: CommandLine): Promise<number> => {
  const [first = null, second = null] = words
  const old = first === null || second === null ? await loadedAcl(context) : await readAclFile(first)
  const comparison = compareAcl(old, await readAclFile(second ?? first ?? (await aclInForceHere(context)).file))
  const paint = painter(context.stdout, context.env)
  await printAnswer(context, comparison, async () => {
    await printLine(context, WORDS[comparison.verdict])
    for (const one of comparison.more) await printLine(context, paint('green', `+ ${beyondText(one)}`))
    for (const one of comparison.less) await printLine(context, paint('red', `- ${beyondText(one)}`))
  })
  return STATUS[comparison.verdict]
}

const beyondText = ({ agent_id, machine_id, argv, line, why }: Beyond): string => {
  if (agent_id === null || machine_id === null) return shownLine(why)
  const whose = `agent ${agent_id.slice(0, 8)} on ${machine_id.slice(0, 8)}`
  return shownLine(`${whose}, line ${line}: ${argv === null ? '' : `${quoteArgv(argv)}: `}${why}`)
}
