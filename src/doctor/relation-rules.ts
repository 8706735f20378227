import { counted } from '../base/counted.ts'
import { errorText } from '../base/errors.ts'
import { shellWord, shellWords } from '../base/shell-word.ts'
import type { LocalApi } from '../clients/local-api.ts'
import { askRules } from '../clients/rules.ts'
import { findMetacharacter, matchesToken, parseForeignArgv } from '../protocol/argv-template.ts'
import type { ExecRule } from '../protocol/exec.ts'
import { type Finding, fail, ok, warn } from './findings.ts'

interface RuleQuestion {
  /** As a person names it. */
  readonly agent: string
  readonly agentId: string
  readonly argv: readonly string[] | null
}

/** What would mend it over there. */
interface Remedies {
  readonly trust: string
  readonly explain: string
}

const HOW_TO_LIST = 'discoverable = true in the ACL entry, then restart x0xd'

const fits = (rule: ExecRule, argv: readonly string[]): boolean => {
  const tokens = parseForeignArgv(rule.argv)
  return typeof tokens !== 'string' && tokens.length === argv.length && tokens.every((token, at) => matchesToken(token, argv[at]!))
}

const commandFinding = (argv: readonly string[], rules: readonly ExecRule[], { explain }: Remedies): Finding => {
  const meta = findMetacharacter(argv)
  if (meta !== null) {
    const text = `token ${meta.token} has ${JSON.stringify(meta.character)}: every request with it is denied (shell_metachar_in_argv)`
    return fail(
      'command',
      text,
      'no shell runs there: give each argument as a word of its own, or put it into a script there and allow that',
    )
  }
  const rule = rules.find((one) => fits(one, argv))
  if (rule !== undefined) {
    const stdin = rule.max_stdin_bytes === 0 ? 'no stdin' : `stdin up to ${rule.max_stdin_bytes} bytes`
    return ok('command', `${shellWords(argv)} is allowed there: at most ${rule.timeout_ms / 1000} s, ${stdin}`)
  }
  const unlisted = `${shellWords(argv)} is not among the commands that it lists. It may be allowed`
  return { ...(rules.length === 0 ? ok('command', unlisted) : warn('command', unlisted, explain)), remedy: explain }
}

/** What the other side lets this agent run, as far as it tells. */
export const ruleFindings = async (api: LocalApi, { agent, agentId, argv }: RuleQuestion, remedies: Remedies): Promise<Finding[]> => {
  try {
    const { denial_reason, rules, left_out } = await askRules(api, agentId)
    if (denial_reason === 'trust_rejected' || denial_reason === 'unverified_sender')
      return [fail('trust there', `it does not trust this agent on this machine (${denial_reason})`, remedies.trust)]
    if (denial_reason !== null) return [fail('rules there', `it answers nothing: ${denial_reason}`, 'there: x0xd --doctor')]
    const trusted = ok('trust there', 'it trusts this agent on this machine')
    const count = rules.length + left_out
    const told =
      count === 0
        ? {
            ...ok('rules there', `${agent} does not list the commands that you may run. This is not an error`),
            remedy: `Try, on ${agent}: ${HOW_TO_LIST}`,
          }
        : ok('rules there', `it tells of ${counted(count, 'command')}: x0x acl mine ${shellWord(agent)}`)
    return [trusted, told, ...(argv === null ? [] : [commandFinding(argv, rules, remedies)])]
  } catch (error) {
    return [warn('rules there', errorText(error), 'there: x0xd --doctor, x0x audit tail')]
  }
}
