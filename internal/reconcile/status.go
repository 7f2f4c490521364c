package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StatusPatch returns a JSON merge patch that turns the status of exactly this version of an object from old
// into new. It contains only the fields that change, and is nil if there are none. old and new are pointers
// to structs of the same type. The first status is written completely, because schemas require fields that
// are zero.
func StatusPatch(object metav1.Object, old, new any) ([]byte, error) {
	if equality.Semantic.DeepEqual(old, new) {
		return nil, nil
	}

	before, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	if equality.Semantic.DeepEqual(
		reflect.ValueOf(old).Elem().Interface(),
		reflect.Zero(reflect.TypeOf(old).Elem()).Interface(),
	) {
		before = []byte("{}")
	}
	after, err := json.Marshal(new)

	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	changes, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("comparing status: %w", err)
	}
	if string(changes) == "{}" {
		return nil, nil
	}
	return MergePatch(object, nil, map[string]any{"status": json.RawMessage(changes)})
}

// statusEvery is the minimum interval between status writes that change only numbers: the pods of a large set
// change faster than anybody reads.
const statusEvery = 500 * time.Millisecond

// StatusThrottle limits how often one status is written. The zero value lets the first write through at once.
type StatusThrottle struct{ written time.Time }

// Wait returns how long the write of a status may wait. onlyNumbers is true if only numbers change; other
// changes never wait. If Wait returns 0, the status must be written now, and the throttle counts it as
// written.
func (p *StatusThrottle) Wait(now time.Time, onlyNumbers bool) time.Duration {
	if wait := statusEvery - now.Sub(p.written); wait > 0 && onlyNumbers {
		return wait
	}
	p.written = now
	return 0
}

// PatchStatus patches the status of exactly this version of an object; old and new are as in [StatusPatch].
func (w *Writer) PatchStatus(ctx context.Context, object client.Object, old, new any) error {
	body, err := StatusPatch(object, old, new)
	if err != nil || body == nil {
		return err
	}
	if _, err := Patch(ctx, w, object, body, "status"); err != nil {
		return StaleIfNotFound(fmt.Errorf("writing status: %w", err))
	}
	return nil
}

// Write writes a status at the end of a pass, unless it is unchanged or may wait. It returns when to requeue
// for what is left; 0 means not at all.
func (p *StatusThrottle) Write(
	ctx context.Context, w *Writer, object client.Object, old, new any, onlyNumbers bool,
) (time.Duration, error) {
	if equality.Semantic.DeepEqual(old, new) {
		return 0, nil
	}
	if wait := p.Wait(w.Now(), onlyNumbers); wait > 0 {
		return wait, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}

	err := w.PatchStatus(ctx, object, old, new)
	if IsStalePlan(err) {
		return RetryAfter, nil
	}
	return 0, err
}
