// Variables for commands on a terminal without a typing user: pagers only print, editors fail, and nothing prompts.

/** Editor for programs that start it by a shell. */
const NO_EDITOR = `sh -c 'echo "rexec: no editor, because the command has no terminal. Give the text as an option, such as git commit -m TEXT, or set the editor: --env GIT_EDITOR=PROGRAM" >&2; exit 1'`

const PAGERS = {
  PAGER: 'cat',
  GIT_PAGER: 'cat',
  MANPAGER: 'cat',
  BAT_PAGER: 'cat',
  DELTA_PAGER: 'cat',
  DPKG_PAGER: 'cat',
  GH_PAGER: 'cat',
  PSQL_PAGER: 'cat',
  // An empty value means no pager.
  AWS_PAGER: '',
  SYSTEMD_PAGER: '',
} as const

const EDITORS = {
  EDITOR: NO_EDITOR,
  VISUAL: NO_EDITOR,
  GIT_EDITOR: NO_EDITOR,
  GIT_SEQUENCE_EDITOR: NO_EDITOR,
  HGEDITOR: NO_EDITOR,
  JJ_EDITOR: NO_EDITOR,
  KUBE_EDITOR: NO_EDITOR,
  SVN_EDITOR: NO_EDITOR,
  // These programs split the text and start its first word.
  SUDO_EDITOR: 'false',
  SYSTEMD_EDITOR: 'false',
} as const

const PROMPTS = {
  GIT_TERMINAL_PROMPT: '0',
  GIT_ASKPASS: 'false',
  SSH_ASKPASS: 'false',
  SSH_ASKPASS_REQUIRE: 'force',
  DEBIAN_FRONTEND: 'noninteractive',
  GH_PROMPT_DISABLED: '1',
  PIP_NO_INPUT: '1',
} as const

const filled = (names: object, value: string | undefined): Record<string, string> =>
  value === undefined ? {} : Object.fromEntries(Object.keys(names).map((name) => [name, value]))

/** Variables of a command before those of its client. A general variable of the client, such as PAGER, also replaces the special ones. */
export const unattendedVariables = (env: Readonly<Record<string, string>>): Record<string, string> => ({
  ...PAGERS,
  ...filled(PAGERS, env['PAGER']),
  ...EDITORS,
  ...filled(EDITORS, env['VISUAL'] ?? env['EDITOR']),
  ...filled({ GIT_SEQUENCE_EDITOR: '' }, env['GIT_EDITOR']),
  ...PROMPTS,
})
