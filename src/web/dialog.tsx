import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { VIEWS } from './router.ts'
import { Name } from './visible.tsx'

interface ConfirmProps {
  readonly title: string
  /** Sentences that say what changes. */
  readonly children: ComponentChildren
  readonly action: string
  /** Text of the button that changes nothing. Default: Cancel. */
  readonly cancel?: string
  readonly isDanger?: boolean
  /** Whether there is something to confirm. */
  readonly isReady?: boolean
  /** Makes the change and closes the dialog. If it throws, the dialog stays open with the reason. */
  readonly confirm: () => Promise<unknown>
  readonly close: () => void
}

/** Asks before a change. Escape and Cancel change nothing. The browser keeps the focus inside. */
export const Confirm = ({ title, children, action, cancel = 'Cancel', isDanger = false, isReady = true, confirm, close }: ConfirmProps) => {
  const dialog = useRef<HTMLDialogElement>(null)
  const [problem, setProblem] = useState<string | null>(null)
  const [isBusy, setBusy] = useState(false)
  useEffect(() => dialog.current?.showModal(), [])
  const act = async (): Promise<void> => {
    setBusy(true)
    try {
      await confirm()
      setBusy(false)
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
      setBusy(false)
    }
  }
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onClose={close}>
      <h2 id="confirm-title">
        <Name text={title} />
      </h2>
      {children}
      {problem !== null && (
        <p class="warning" role="alert">
          <Name text={problem} />
        </p>
      )}
      <div class="buttons">
        <button type="button" autofocus onClick={close}>
          {cancel}
        </button>
        <button type="button" class={isDanger ? 'danger' : 'primary'} disabled={isBusy || !isReady} onClick={() => void act()}>
          {action}
        </button>
      </div>
    </dialog>
  )
}

const KEYS: readonly (readonly [string, string])[] = [
  [`1 – ${VIEWS.length}`, 'go to a view'],
  ['↓ ↑ or j k', 'next and previous request or row'],
  ['Enter', 'open the row'],
  ['Esc', 'back to the list; close a dialog'],
  ['/', 'go to the search field; find in the output'],
  ['n N', 'next and previous hit in the output'],
  ['d', 'deny the focused request'],
  ['t', 'automatic, light or dark colours'],
  ['?', 'show or hide this help'],
]

export const Help = ({ close }: { readonly close: () => void }) => {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current?.showModal(), [])
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClose={close}>
      <h2 id="help-title">Keys</h2>
      <dl class="help">
        {KEYS.map(([keys, text]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <p class="quiet">There is no single key that allows a command.</p>
      <div class="buttons">
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
    </dialog>
  )
}
