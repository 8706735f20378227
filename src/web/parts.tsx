import type { ComponentChildren } from 'preact'
import { shownToken } from '../base/visible-text.ts'
import type { PageRun } from '../protocol/page-lists.ts'
import type { TrustLevel } from '../protocol/reasons.ts'
import { agoText, clockText, resultText } from './format.ts'
import { Name, Token } from './visible.tsx'

/** Small pieces that several views show in the same way. */

/** The result of a run: a sign and a colour, and the same in words. */
export const Result = ({ run }: { readonly run: Pick<PageRun, 'result' | 'code' | 'signal' | 'reason'> }) => (
  <span class={`result ${run.result}`}>
    <Name text={resultText(run)} />
  </span>
)

const PLAIN = /^[\w@%+=:,./-]+$/

/** A command on one line. Words that are not plain are quoted, and every character is visible. */
export const Command = ({ argv, isCut = false }: { readonly argv: readonly string[]; readonly isCut?: boolean }) => (
  <code class="command">
    {argv.map((word, at) => (
      <span key={at}>
        {at > 0 && ' '}
        {PLAIN.test(word) ? word : /^[ -~]*$/.test(word) ? <bdi>{shownToken(word)}</bdi> : <Token text={word} />}
      </span>
    ))}
    {isCut && ' …'}
    {argv.length === 0 && <span class="quiet">command not known</span>}
  </code>
)

/** A time as people say it, with the exact one in its title. */
export const Ago = ({ iso, now }: { readonly iso: string; readonly now: number }) => (
  <time dateTime={iso} title={iso}>
    <Name text={agoText(iso, now)} />
  </time>
)

export const Clock = ({ iso, now }: { readonly iso: string; readonly now: number }) => (
  <time dateTime={iso} title={iso}>
    <Name text={clockText(iso, now)} />
  </time>
)

export const Labels = ({ labels }: { readonly labels: Readonly<Record<string, string>> }) => (
  <span class="labels">
    {Object.entries(labels).map(([key, value]) => (
      <span key={key} class="label">
        <Name text={`${key}=${value}`} />
      </span>
    ))}
  </span>
)

/** The trust level of a contact. */
export const Level = ({ level, isRevoked = false }: { readonly level: TrustLevel; readonly isRevoked?: boolean }) => (
  <span class={`level ${isRevoked ? 'blocked' : level}`}>{isRevoked ? `revoked (was ${level})` : level}</span>
)

/** Reasons why something is missing. */
export const Problems = ({ texts }: { readonly texts: readonly (string | null)[] }) => (
  <div role="status">
    {texts.map(
      (text) =>
        text !== null && (
          <p key={text} class="warning">
            <Name text={text} />
          </p>
        ),
    )}
  </div>
)

export const Fact = ({ name, children }: { readonly name: string; readonly children: ComponentChildren }) => (
  <>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </>
)
