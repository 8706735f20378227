import { AppError } from '../../base/errors.ts'
import type { RunStart, TerminalSize } from '../../executor-api/local-executor.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS } from '../../protocol/limits.ts'
import { MAX_INLINE_STDIN, MAX_VARIABLE_TEXT } from '../../protocol/rexd-limits.ts'
import type { FullParams as Params } from '../../protocol/rexd-methods.ts'
import { wishOf } from '../../protocol/run-place.ts'
import { NO_BYTES } from '../../protocol/schema.ts'
import { contentBytes } from '../content-bytes.ts'

/** A shell is only another program: its text becomes the last token, or a text of ours is, and the tokens stand behind it as they are. */
export const argvOf = ({ argv, command, shell, login }: Params<'exec.start'>): readonly string[] => {
  const asLogin = login ? ['-l'] : []
  if (shell) {
    if (command === undefined || argv !== undefined) throw new AppError('bad_request', 'shell: true takes a command, and no argv')
    return ['/bin/sh', ...asLogin, '-c', command]
  }
  if (command !== undefined) throw new AppError('bad_request', 'command: only with shell: true; without it, argv is a list of strings')
  if (argv === undefined) throw new AppError('bad_request', 'argv: missing; expected a list of strings')
  return login ? ['/bin/sh', ...asLogin, '-c', 'exec "$0" "$@"', ...argv] : argv
}

/** What the executor is asked for. Throws `bad_request`, `resource_limit`. */
export const runOf = (session: string, argv: readonly string[], params: Params<'exec.start'>, terminal: TerminalSize | null): RunStart => {
  if (argv.length > MAX_ARGV_TOKENS || argv.some((token) => Buffer.byteLength(token) > MAX_ARGV_BYTES))
    throw new AppError('bad_request', `argv: expected at most ${MAX_ARGV_TOKENS} texts of at most ${MAX_ARGV_BYTES} bytes`)
  if (Object.values(params.env).some((value) => Buffer.byteLength(value) > MAX_VARIABLE_TEXT))
    throw new AppError('bad_request', `env: expected texts of at most ${MAX_VARIABLE_TEXT} bytes`)
  const wish = wishOf(params)
  return {
    session,
    argv,
    // A login shell is one, whatever it starts.
    shell: params.shell || params.login,
    cwd: params.cwd ?? null,
    env: params.env,
    stdin: params.stdin === undefined ? NO_BYTES : contentBytes(params.stdin, params.stdin_encoding, 'stdin', MAX_INLINE_STDIN),
    input: params.stdin_open,
    // 0 asks for the usual time, as existing clients do.
    timeout_ms: params.timeout_ms === undefined || params.timeout_ms === 0 ? null : params.timeout_ms,
    max_output_bytes: params.max_output_bytes ?? null,
    fail_on_limit: params.fail_on_limit,
    detach: params.detach,
    terminal,
    ...(wish && { wish }),
  }
}
