import { AppError } from '../base/errors.ts'
import { replaceInvisible } from '../base/visible-text.ts'
import { verifyAgent } from '../identity/signing.ts'
import { parseForeignArgv } from '../protocol/argv-template.ts'
import { EXEC_RULES_DOMAIN, type ExecRule, type ExecRules, checkArgvSize, execDetachRules } from '../protocol/exec.ts'
import { type Expected, type SignedBody, partiesProblem } from './exit.ts'

type Rules = Pick<ExecRules, 'rules' | 'left_out'>

/** The rules, when the asked agent signed them and they answer this question. Throws `malformed` for all else. */
export const readRules = (frame: SignedBody, expected: Expected): Rules => {
  if (!verifyAgent(expected.from.agentPublicKey, EXEC_RULES_DOMAIN, frame.body, frame.signature))
    throw new AppError('malformed', 'the rules are not signed by the agent')
  return decodeRules(frame.body, expected)
}

/** Of bytes that the agent signed. Throws `malformed`. */
export const decodeRules = (body: Uint8Array, expected: Expected): Rules => {
  const answer = execDetachRules.decode(body)
  const problem = partiesProblem(answer, expected)
  if (problem !== null) throw new AppError('malformed', `the answer ${problem}`)
  return { rules: answer.rules.map(readRule), left_out: answer.left_out }
}

/**
 * A rule of another host, as any door of ours may pass it on: every token is one that the grammar knows and that a
 * Request could carry, and the description shows all its characters.
 */
const readRule = (rule: ExecRule, index: number): ExecRule => {
  const wrong = (what: string): AppError => new AppError('malformed', `rule ${index}: ${what}`)
  checkArgvSize(rule.argv)
  const tokens = parseForeignArgv(rule.argv)
  if (typeof tokens === 'string') throw wrong(tokens)
  if (rule.timeout_ms < 1 || rule.detach?.lifetime_ms === 0) throw wrong('it gives no time to run')
  return { ...rule, description: rule.description === null ? null : escaped(rule.description) }
}

/** What does not show itself stands there as text. */
const escaped = (text: string): string => replaceInvisible(text, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`)
