import { visibleJson } from '../../base/visible-text.ts'
import { denialReason, hexId, requestId } from '../api-fields.ts'
import { type Sent, count, flag, list, orNull, record, text, texts } from '../json-table.ts'
import type { ExecRule } from '../wire/exec.ts'

const DETACH = { lifetime_ms: count, keep_bytes: count.says('of its output, both streams together') }

/** What `GET /exec/rules` answers and `x0x acl mine --json` prints; the rules are in the order of the ACL there. Descriptions show all their characters. */
export const RULES = {
  ok: flag.says('the agent said which; false for a denial'),
  request_id: requestId,
  agent_id: hexId,
  machine_id: hexId,
  denial_reason: orNull(denialReason),
  rules: list(
    record({
      description: orNull(text).says('of the ACL entry, as its operator wrote it: a foreign text'),
      argv: texts.says('literals and the templates <INT> and <URL_PATH>'),
      timeout_ms: count,
      max_stdout_bytes: count,
      max_stderr_bytes: count,
      max_stdin_bytes: count.says('0: it takes no stdin'),
      detach: orNull(record(DETACH)).says('of a run that outlives its caller; null: no run of it may'),
    }),
  ),
  left_out: count.says('commands that did not fit the answer'),
}
export type RulesJson = Omit<Sent<typeof RULES>, 'rules'> & { readonly rules: readonly ExecRule[] }

/** Which arguments of a command are allowed. */
export const ALLOWED_ARGUMENTS = ['any', 'some', 'none'] as const

/** What a name of a program stands for, exactly as a run of it would find it, and whether one would be allowed. */
export interface CommandLookup {
  /** A run would start it; null: it is not allowed, and not told. */
  readonly found: boolean | null
  /** Where it stands, as a run starts it; null: nowhere. */
  readonly path: string | null
  /** The file that `path` leads to when every link is followed. */
  readonly real_path: string | null
  /** The directories in which a bare name was looked for, in their order; null: it was no bare name. */
  readonly searched: readonly string[] | null
  /** Why no run could start it; null: one could. */
  readonly problem: { readonly kind: 'not_found' | 'not_executable'; readonly detail: string } | null
  readonly allowed_arguments: (typeof ALLOWED_ARGUMENTS)[number]
  /** Why no run of it is allowed, the code of an error with it; null: one is. */
  readonly denial: { readonly code: string; readonly detail: string } | null
}

/** How many bytes of a journal's line a command takes, MAX_COMMAND_JSON at most: its argv and the names of its variables, as JSON in which nothing is invisible. */
export const commandSize = (argv: readonly string[], variables: readonly string[]): number =>
  Buffer.byteLength(visibleJson(JSON.stringify([argv, variables])))
