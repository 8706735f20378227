import { visibleJson } from '../../base/visible-text.ts'
import { denialReason, hexId, requestId } from '../api-fields.ts'
import { type Sent, count, flag, list, orNull, record, text, texts } from '../json-table.ts'
import type { ExecRule } from '../wire/exec.ts'

const DETACH = { lifetime_ms: count, keep_bytes: count.says('maximum bytes of stored output, both streams together') }

/** Response of `GET /exec/rules`, in the order of the ACL. Invisible characters in descriptions are escaped. */
export const RULES = {
  ok: flag.says('the agent returned its rules; false for a denial'),
  request_id: requestId,
  agent_id: hexId,
  machine_id: hexId,
  denial_reason: orNull(denialReason),
  rules: list(
    record({
      description: orNull(text).says('description of the ACL entry, written by its operator (untrusted text)'),
      argv: texts.says('literals and the templates <INT> and <URL_PATH>'),
      timeout_ms: count,
      max_stdout_bytes: count,
      max_stderr_bytes: count,
      max_stdin_bytes: count.says('0 if stdin is not allowed'),
      detach: orNull(record(DETACH)).says('limits of a detached run; null if the command may not run detached'),
      terminal: flag.says('the command may run on a terminal'),
      record: flag.says('the agent keeps a transcript of each run'),
      watch: flag.says('operators of the agent may watch its runs'),
    }),
  ),
  left_out: count.says('number of commands that did not fit into the answer'),
}
export type RulesJson = Omit<Sent<typeof RULES>, 'rules'> & { readonly rules: readonly ExecRule[] }

/** Which arguments of a command are allowed. */
export const ALLOWED_ARGUMENTS = ['any', 'some', 'none'] as const

/** The program that a run of a name would start, and whether the run would be allowed. */
export interface CommandLookup {
  /** True if a run would start it, or null if it is not allowed and therefore not revealed. */
  readonly found: boolean | null
  /** Path by which a run starts it, or null if not found. */
  readonly path: string | null
  /** The file behind all links of `path`. */
  readonly real_path: string | null
  /** Directories searched for a bare name, in their order, or null for a path. */
  readonly searched: readonly string[] | null
  /** Why no run could start it, or null if one could. */
  readonly problem: { readonly kind: 'not_found' | 'not_executable'; readonly detail: string } | null
  readonly allowed_arguments: (typeof ALLOWED_ARGUMENTS)[number]
  /** Why no run of it is allowed, with the error code, or null if one is. */
  readonly denial: { readonly code: string; readonly detail: string } | null
}

/** Bytes of a command in an audit log line, as JSON with invisible characters escaped. At most MAX_COMMAND_JSON. */
export const commandSize = (argv: readonly string[], variables: readonly string[]): number =>
  Buffer.byteLength(visibleJson(JSON.stringify([argv, variables])))
