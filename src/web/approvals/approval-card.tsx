import type { PendingApprovalRequest } from '../../protocol/desk/messages.ts'
import { OUTLIVES_REQUESTER, REQUESTER_CAN_WRITE } from '../../protocol/desk/approval-request.ts'
import { fileText, requesterText } from '../../protocol/desk/file-text.ts'
import { Fact } from '../parts.tsx'
import { Decide } from './decide.tsx'
import { askerText, foreignTexts, leftText, proofText, stdinLines, stdinText, targetText } from './approval-facts.ts'
import type { ShownApproval } from '../store.ts'
import { useNow } from '../use-now.ts'
import { Name, Strange, Token } from '../visible.tsx'

const Countdown = ({ until }: { readonly until: number }) => {
  const now = useNow(250)
  return (
    <span class={until - now < 15_000 ? 'countdown late' : 'countdown'} role="timer">
      {leftText(until - now)}
    </span>
  )
}

const WhatFacts = ({ question }: Pick<PendingApprovalRequest, 'question'>) => {
  const others = question.programs.filter((program) => program !== question.executable)
  return (
    <>
      <Fact name="Runs">
        <Token text={question.executable} />
      </Fact>
      {others.length > 0 && (
        <Fact name="Also starts">
          {others.map((program, at) => (
            <span key={at}>
              <Token text={program} />{' '}
            </span>
          ))}
        </Fact>
      )}
      {question.script !== null && (
        <Fact name="Script">
          <Token text={question.script.path} /> <span class="quiet mono">SHA-256 {question.script.sha256}</span>
        </Fact>
      )}
      {question.writable.map((file) => (
        <Fact key={file.path} name="Can change">
          <Token text={file.path} /> <span class="quiet mono">SHA-256 {file.sha256}</span> <strong>{REQUESTER_CAN_WRITE}</strong>
        </Fact>
      ))}
      <Fact name="Where">
        {targetText(question)}, in <Token text={question.cwd} />
      </Fact>
      <Fact name="Variables">
        {question.env_names.length === 0 && 'none'}
        {question.env_names.map((name, at) => (
          <span key={at}>
            <Token text={name} />{' '}
          </span>
        ))}
      </Fact>
      {question.variables.map(({ name, value }) => (
        <Fact key={name} name="Sets">
          <Token text={name} /> = {value === null ? 'a value too long to show' : <Token text={value} />}
        </Fact>
      ))}
      <Fact name="Input">
        {stdinText(question)}
        {stdinLines(question).length > 0 && (
          <ol class="input" aria-label="The input, line by line">
            {stdinLines(question).map((line, at) => (
              <li key={at}>
                <Token text={line} />
              </li>
            ))}
          </ol>
        )}
      </Fact>
    </>
  )
}

/** The requester, the reason for the request, and what the decision is bound to. */
const WhoFacts = ({ question }: Pick<PendingApprovalRequest, 'question'>) => (
  <>
    <Fact name="Asked by">
      <bdi>{askerText(question)}</bdi>
      <span class="quiet"> {proofText(question)}</span>
    </Fact>
    <Fact name="Why asked">
      {question.always_ask !== null && !question.why.includes(question.always_ask) && (
        <strong>
          Always asked: <Name text={question.always_ask} />{' '}
        </strong>
      )}
      <span class={question.always_ask === null ? '' : 'strong'}>
        <Name text={question.why} />
      </span>
    </Fact>
    <Fact name="Limits">
      {question.timeout_ms / 1000} s{question.outlives && <strong> ({OUTLIVES_REQUESTER})</strong>}; security {question.security}, ask{' '}
      {question.ask}; no approver connected: {question.ask_fallback}
    </Fact>
    {question.approvers !== null && (
      <Fact name="Also needs">
        {question.approvers.needed} of these agents: <span class="mono">{question.approvers.agent_ids.join(' ')}</span>
      </Fact>
    )}
    <Fact name="Bound to">
      <span class="mono quiet">{question.permit_sha256}</span>
    </Fact>
  </>
)

/** The command, word by word, or what a file command does. */
const What = ({ question }: Pick<PendingApprovalRequest, 'question'>) =>
  question.file === undefined ? (
    <ol class="argv" aria-label="The command, word by word">
      {question.argv.map((token, at) => (
        <li key={at}>
          <Token text={token} />
        </li>
      ))}
    </ol>
  ) : (
    <p class="file">
      <Name text={`${requesterText(question)} wants to ${fileText(question.file)}.`} />
    </p>
  )

/** A complete approval request. */
export const ApprovalCard = ({ shown, changedAt }: { readonly shown: ShownApproval; readonly changedAt: number }) => {
  const { item, settled } = shown
  const { question } = item
  const title = `title-${item.question_id}`
  return (
    <article class={settled === null ? 'card' : 'card settled'} tabIndex={-1} data-question={item.question_id} aria-labelledby={title}>
      <header>
        <h3 id={title}>
          <bdi>{requesterText(question)}</bdi> asks to {question.file === undefined ? 'run this' : 'use a file'} {targetText(question)}
        </h3>
        {settled === null ? (
          <Countdown until={item.expires_at_ms} />
        ) : (
          <span class={`outcome ${settled.decision}`}>
            {settled.decision.replaceAll('_', ' ')} by <Name text={settled.by} />
          </span>
        )}
      </header>
      <What question={question} />
      <Strange texts={foreignTexts(question)} />
      {question.opaque !== null && (
        <p class="warning">
          Warning: <Name text={question.opaque} />
        </p>
      )}
      <dl class="facts">
        {question.file === undefined && <WhatFacts question={question} />}
        <WhoFacts question={question} />
      </dl>
      {settled === null && <Decide item={item} changedAt={changedAt} />}
    </article>
  )
}
