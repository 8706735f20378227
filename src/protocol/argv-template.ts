/** One token of an allowed command. The executor matches requests against it. A requester parses received ones. */
export type PatternToken =
  | { readonly kind: 'literal'; readonly text: string }
  /** `<INT>` as the whole token. */
  | { readonly kind: 'int' }
  /** `<URL_PATH>`, after a literal prefix that may be empty. */
  | { readonly kind: 'url_path'; readonly prefix: string }

/** Range of `<INT>`, without sign or leading zero. */
export const INT_RANGE = { min: 1, max: 999_999 } as const
const INT = /^[1-9][0-9]{0,5}$/
/** `<URL_PATH>`. `..` is refused separately. */
const URL_PATH = /^\/[A-Za-z0-9/_.-]{0,256}$/
/** The same without the length, as a regular expression that all validators of JSON schemas support. */
export const URL_PATH_SHAPE = /^\/(?:\.?[A-Za-z0-9/_-])*\.?$/
export const MAX_URL_PATH = 257
const URL_PATH_TOKEN = '<URL_PATH>'
/** Angle brackets mark a template. */
const TEMPLATE = /<[^<>]*>/

/** No shell ever reads a token. These characters are refused nevertheless, as a second protection. */
const METACHARACTER = /[;|&><`$\n\0]/

/** Parses one token of a rule, or says why it is invalid. */
export const parseToken = (text: string): PatternToken | string => {
  if (text === '<INT>') return { kind: 'int' }
  const prefix = text.endsWith(URL_PATH_TOKEN) ? text.slice(0, -URL_PATH_TOKEN.length) : undefined
  const template = TEMPLATE.exec(prefix ?? text)?.[0]
  if (template === undefined) return prefix === undefined ? { kind: 'literal', text } : { kind: 'url_path', prefix }
  if (template === '<INT>') return '<INT> must be the whole token'
  if (template === URL_PATH_TOKEN) return '<URL_PATH> must be the whole token or its end'
  return `unknown template ${template}; use <INT> or <URL_PATH>`
}

/** Parses the tokens of a command from another host, or says why no request could send it. */
export const parseForeignArgv = (argv: readonly string[]): PatternToken[] | string => {
  const tokens = argv.map(parseToken)
  for (const [at, token] of tokens.entries()) if (typeof token === 'string') return `token ${at}: ${token}`
  const read = tokens as PatternToken[]
  const [program] = read
  if (program?.kind !== 'literal' || program.text === '') return 'the program name is missing'
  return findMetacharacter(read.map(literalOf)) === null ? read : 'a token contains a character that is not allowed in any request'
}

export const matchesToken = (token: PatternToken, text: string): boolean => {
  switch (token.kind) {
    case 'literal':
      return text === token.text
    case 'int':
      return INT.test(text)
    case 'url_path':
      return text.startsWith(token.prefix) && isUrlPath(text.slice(token.prefix.length))
  }
}

const isUrlPath = (text: string): boolean => URL_PATH.test(text) && !text.includes('..')

export const TEMPLATE_TEXT = {
  int: '1 to 999999, no sign, no leading zero',
  url_path: '/ and up to 256 of A-Z a-z 0-9 / _ . -, without ..',
} as const

/** The first token with a metacharacter, and that character. */
export const findMetacharacter = (argv: readonly string[]): { token: number; character: string } | null => {
  for (const [token, text] of argv.entries()) {
    const character = METACHARACTER.exec(text)?.[0]
    if (character !== undefined) return { token, character }
  }
  return null
}

/** The literal characters of a token. A template has no such characters. */
export const literalOf = (token: PatternToken): string => {
  switch (token.kind) {
    case 'literal':
      return token.text
    case 'int':
      return ''
    case 'url_path':
      return token.prefix
  }
}
