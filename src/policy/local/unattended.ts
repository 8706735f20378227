// Variables for commands on a terminal at which nobody can type: pagers that only print, editors that fail, no prompts.

/** For programs that start their editor by a shell. */
const NO_EDITOR = `sh -c 'echo "rexec: no editor: nobody can type here. Give the text as an option, such as git commit -m TEXT, or set the editor: --env GIT_EDITOR=PROGRAM" >&2; exit 1'`

const PAGERS = {
  PAGER: 'cat',
  GIT_PAGER: 'cat',
  MANPAGER: 'cat',
  BAT_PAGER: 'cat',
  DELTA_PAGER: 'cat',
  DPKG_PAGER: 'cat',
  GH_PAGER: 'cat',
  PSQL_PAGER: 'cat',
  // Empty: none.
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
  // These split the text into words and start the first.
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

/** What a command gets before the variables of its caller. A general one of these, such as PAGER, also stands in place of the special ones. */
export const unattendedVariables = (env: Readonly<Record<string, string>>): Record<string, string> => ({
  ...PAGERS,
  ...filled(PAGERS, env['PAGER']),
  ...EDITORS,
  ...filled(EDITORS, env['VISUAL'] ?? env['EDITOR']),
  ...filled({ GIT_SEQUENCE_EDITOR: '' }, env['GIT_EDITOR']),
  ...PROMPTS,
})
