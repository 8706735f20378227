import { useEffect, useRef } from 'preact/hooks'
import { VIEWS } from './router.ts'

const KEYS: readonly (readonly [string, string])[] = [
  [`1 – ${VIEWS.length}`, 'go to a view'],
  ['↓ ↑ or j k', 'next and previous request or row'],
  ['Enter', 'open the row'],
  ['Esc', 'back to the list; close a dialog'],
  ['/', 'go to the search field'],
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
