import { z } from 'zod'

import { MAX_ARGV_TOKENS, MAX_NAME, MAX_TEXT } from '../../protocol/limits.ts'
import { MAX_EVENTS_WAIT_MS, MAX_PATH, MAX_ROOTS, MAX_SIGNAL_NAME, MAX_TERMINAL_SIDE, MAX_VARIABLES } from '../../protocol/rexd-limits.ts'

const whole = z.int().min(0)
const positive = z.int().min(1)
/** Half a character of JSON's escapes is none in UTF-8, which files, journal and programs have. */
const unicode = [(text: string): boolean => text.isWellFormed(), 'not valid Unicode'] as const
const path = z
  .string()
  .min(1)
  .max(MAX_PATH)
  .refine(...unicode)
const name = z
  .string()
  .min(1)
  .max(MAX_NAME)
  .refine(...unicode)
const encoding = z.enum(['utf8', 'base64']).default('utf8')
/** A time of a file in either form, `mtime` or `mtime_ms`. */
const mtime = z.union([z.string().max(MAX_NAME), z.int()])
const session = { session_id: name }
const process = { ...session, process_id: name }

const pty = { ...session, pty_id: name }
const side = z.int().min(1).max(MAX_TERMINAL_SIDE)

/** What is to run, where, and with which variables. */
const program = {
  argv: z.array(z.string()).min(1).max(MAX_ARGV_TOKENS).optional(),
  command: z.string().min(1).optional(),
  shell: z.boolean().default(false),
  login: z.boolean().default(false),
  cwd: path.optional(),
  env: z
    .record(name, z.string())
    .refine((env) => Object.keys(env).length <= MAX_VARIABLES, `at most ${MAX_VARIABLES} variables`)
    .default({}),
}

const limits = z.strictObject({
  max_output_bytes: positive.optional(),
  max_file_read_bytes: positive.optional(),
  max_processes_per_session: positive.optional(),
  default_timeout_ms: positive.optional(),
  hard_timeout_ms: positive.optional(),
})

/** The params of each method: every field, and its default. */
export const PARAMS = {
  'session.open': z.strictObject({
    client_name: name,
    client_version: name.optional(),
    target: name.optional(),
    workspace_roots: z.array(path).max(MAX_ROOTS).optional(),
    requested_capabilities: z.array(name).max(MAX_ROOTS).optional(),
    limits: limits.default({}),
    resumable: z.boolean().default(false),
  }),
  'session.resume': z.strictObject({ ...session, resume_token: name, cursor: whole.default(0) }),
  'session.events': z.strictObject({ ...session, cursor: whole, timeout_ms: whole.max(MAX_EVENTS_WAIT_MS).default(0) }),
  'session.close': z.strictObject(session),
  'session.info': z.strictObject(session),
  'exec.start': z.strictObject({
    ...session,
    ...program,
    stdin: z.string().optional(),
    stdin_encoding: encoding,
    stdin_open: z.boolean().default(false),
    timeout_ms: whole.optional(),
    max_output_bytes: positive.optional(),
    fail_on_limit: z.boolean().default(false),
    detach: z.boolean().default(false),
  }),
  'pty.open': z.strictObject({
    ...session,
    ...program,
    cols: side.default(80),
    rows: side.default(24),
    timeout_ms: whole.optional(),
    max_output_bytes: positive.optional(),
  }),
  'pty.input': z.strictObject({ ...pty, data: z.string(), encoding }),
  'pty.resize': z.strictObject({ ...pty, cols: side, rows: side }),
  'pty.close': z.strictObject({ ...pty, kill: z.boolean().default(true) }),
  'exec.wait': z.strictObject({ ...process, timeout_ms: whole.optional() }),
  'exec.kill': z.strictObject({ ...process, signal: z.string().min(1).max(MAX_SIGNAL_NAME).default('TERM') }),
  'exec.input': z.strictObject({ ...process, data: z.string(), encoding, eof: z.boolean().default(false) }),
  'fs.read': z.strictObject({ ...session, path, offset: whole.default(0), length: whole.optional(), encoding }),
  'fs.write': z.strictObject({
    ...session,
    path,
    content: z.string(),
    encoding,
    mode: z.enum(['create', 'replace', 'append']).default('replace'),
    mkdir_parents: z.boolean().default(false),
    atomic: z.boolean().default(false),
    expected_mtime: mtime.optional(),
  }),
  'fs.list': z.strictObject({ ...session, path, recursive: z.boolean().default(false), max_entries: positive.optional() }),
  'fs.glob': z.strictObject({
    ...session,
    pattern: z
      .string()
      .min(1)
      .max(MAX_TEXT)
      .refine(...unicode),
    cwd: path.optional(),
    max_matches: positive.optional(),
  }),
  'fs.stat': z.strictObject({ ...session, path }),
  'fs.edit': z.strictObject({
    ...session,
    path,
    old_string: z.string(),
    new_string: z.string(),
    replace_all: z.boolean().default(false),
    expected_mtime: mtime.optional(),
  }),
  'fs.patch': z.strictObject({ ...session, patch_text: z.string(), cwd: path.optional() }),
} as const satisfies Record<string, z.ZodType>

export type Method = keyof typeof PARAMS
export type Params<M extends Method> = z.output<(typeof PARAMS)[M]>

export const METHODS = Object.keys(PARAMS) as Method[]
export const isMethod = (text: string): text is Method => Object.hasOwn(PARAMS, text)
