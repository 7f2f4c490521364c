package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// API is what a controller reads and writes through.
type API struct {
	// Client writes, and reads from the caches; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// Slim reduces an answer to what the caches would keep of it; nil keeps everything.
	Slim func(any) (any, error)
	// Own holds the writes of the controller. If it is nil, none are remembered, and a stale cache causes
	// conflicts.
	Own *OwnWrites
	// Now returns the current time.
	Now func() time.Time
	// Guard is asked before pods are taken out of service; nil if there are no budgets.
	Guard Guard
	// Limit bounds how many tasks run at once; nil runs them one after the other.
	Limit *WriteLimiter
}

// NewAPI returns an API that remembers no writes yet.
func NewAPI(c client.Client, live client.Reader, slim func(any) (any, error), now func() time.Time) *API {
	return &API{Client: c, Live: live, Slim: slim, Now: now, Own: &OwnWrites{Cache: c, Live: slimmed{live, slim}}}
}

// slimmed reads objects as the caches would keep them.
type slimmed struct {
	client.Reader
	slim func(any) (any, error)
}

// Get implements client.Reader.
func (s slimmed) Get(
	ctx context.Context, name client.ObjectKey, into client.Object, options ...client.GetOption,
) error {
	if err := s.Reader.Get(ctx, name, into, options...); err != nil {
		return err
	}
	_, err := s.slim(into)
	return err
}

// ErrStalePlan ends a task whose plan was made from a state that is no longer true. It is not a failure: the
// next pass makes a new plan.
var ErrStalePlan = errors.New("the world changed meanwhile")

// IsStalePlan reports whether an error means only that the plan is stale: the object has changed, or a task
// returned [ErrStalePlan]. Of joined errors, however deep and however wrapped, all must mean that.
func IsStalePlan(err error) bool {
	_, each := staleness(err)
	return each
}

// staleness reports whether any, and whether each, of the errors that are joined in err means that the plan
// is stale. IsConflict and errors.Is do not tell these apart: they find the first status, or any error.
func staleness(err error) (some, each bool) {
	switch err := err.(type) { //nolint:errorlint // it looks at every error on the way
	case interface{ Unwrap() []error }:
		each = true
		for _, one := range err.Unwrap() {
			ofOne, ofEach := staleness(one)
			some, each = some || ofOne, each && ofEach
		}
		return some, some && each
	case interface{ Unwrap() error }:
		if inner := err.Unwrap(); inner != nil {
			return staleness(inner)
		}
	}
	some = errors.Is(err, ErrStalePlan) || apierrors.IsConflict(err)
	return some, some
}

// StaleIfNotFound returns [ErrStalePlan] if err says that the object to be changed does not exist any more,
// and err otherwise.
func StaleIfNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return ErrStalePlan
	}
	return err
}

// IsNotServed reports whether the API server does not serve the kind, the version or the subresource that was
// asked for. Such an answer is a 404, too, but it names no object.
func IsNotServed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" ||
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IsRejected reports whether the API server refused the request with a code from 400 to 499, so that nothing
// was written.
func IsRejected(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest &&
		status.Status().Code < http.StatusInternalServerError
}

// Refused reports whether the API server refused the request because of this very object, and will probably
// refuse it again.
func Refused(err error) bool {
	return IsRejected(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err) &&
		!apierrors.IsNotFound(err)
}

// denied is an answer that reads as if an object had changed or were gone, which is not so. A webhook gave it, and
// will probably give it again. The answer is hidden from [IsStalePlan] and from those who ask whether it is a 404.
type denied struct{ error }

// Denied returns an answer to a request that no state of the object can make stale, such as a creation, so that it
// does not count as one of a stale plan. An API server that counts many creations at once against a ResourceQuota answers some
// of them so, and the same request succeeds a moment later.
func Denied(err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "resourcequotas" {
		return err
	}
	return denied{err}
}

// IsNamespaceTerminating reports whether an object was not created because its namespace is being deleted.
// Such an error need not be reported to anybody.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Writer writes for one owner. This is the policy for every write of every kind:
//
//   - A patch or a deletion applies to exactly the version that it was decided for: UID and resourceVersion
//     guard it.
//   - The answer is the newest version of its object. It is returned as the caches would keep it, and laid
//     over them from now on.
//   - An answer of 400 to 499 is a clear refusal: nothing was done, and nothing is remembered.
//   - Webhooks may answer 404 and 409, too: see [Writer.Judged].
//   - Any other error leaves open whether the write happened. That is looked up once, before the next plan.
//   - Errors are returned unchanged; [IsStalePlan], [StaleIfNotFound] and [Refused] classify them.
type Writer struct {
	*API
	owner types.UID
}

// For returns a Writer for an owner.
func (a *API) For(owner types.UID) *Writer { return &Writer{a, owner} }

// Each runs do for 0 to n-1, as many at a time as the WriteLimiter grants the owner. It waits for all of them
// and returns their errors by index.
func (w *Writer) Each(ctx context.Context, n int, do func(i int) error) []error {
	return w.Limit.Each(ctx, w.owner, n, do)
}

// answered records how quickly the API server answered, and with which error.
func (w *Writer) answered(since time.Time, err error) error {
	w.Limit.observe(w.owner, w.Now().Sub(since), err)
	return err
}

// Failed remembers a write that may have happened although its answer was an error, for example one that
// another part of the process sent. A write whose object was to be named by the API server cannot be looked
// up, and is not remembered.
func (w *Writer) Failed(object client.Object, err error) {
	if !IsRejected(err) && !errors.As(err, new(denied)) && object.GetName() != "" {
		w.Own.Unsure(w.owner, object, w.Now())
	}
}

// Judged tells whether the answer 404 or 409 to a guarded request means that the pod is gone or has changed. If a live
// read finds it as the request expected it, a webhook answered so, and the error is one that neither [IsStalePlan] nor
// those who ask for a 404 recognize. Other errors are returned unchanged, and so is the first 409 about a version: mostly
// the caches show soon what has changed.
func (w *Writer) Judged(ctx context.Context, pod *corev1.Pod, err error) error {
	gone := apierrors.IsNotFound(err)
	if w.Own == nil || !gone && (!apierrors.IsConflict(err) || w.Own.Newer(ctx, pod) != nil || !w.Own.conflict(w.owner, pod)) {
		return err
	}
	now, unread := w.Own.live(ctx, pod)
	switch {
	case unread != nil:
		return unread
	case now == nil || now.GetUID() != pod.UID || !gone && now.GetResourceVersion() != pod.ResourceVersion:
		return err
	}
	return denied{err}
}

// slim reduces an object to what the caches would keep of it.
func (w *Writer) slim(object client.Object) error {
	if w.Slim == nil {
		return nil
	}
	if _, err := w.Slim(object); err != nil {
		return fmt.Errorf("reading the answer about %s: %w", object.GetName(), err)
	}
	return nil
}

// Create creates an object from a document, which is sent unchanged, including fields that our types do not
// know. The answer is read into the given object, whose type and name must be those of the document.
func (w *Writer) Create(ctx context.Context, document map[string]any, into client.Object) error {
	sent := &unstructured.Unstructured{Object: document}
	into.SetNamespace(sent.GetNamespace())
	into.SetName(sent.GetName())
	if err := w.answered(w.Now(), w.Client.Create(ctx, sent)); err != nil {
		w.Failed(into, err)
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(sent.Object, into); err != nil {
		w.Own.Unsure(w.owner, into, w.Now()) // the object exists
		return fmt.Errorf("reading the created object: %w", err)
	}
	return w.created(into)
}

// CreateTyped creates an object and reads the answer into it.
func (w *Writer) CreateTyped(ctx context.Context, object client.Object) error {
	if err := w.answered(w.Now(), w.Client.Create(ctx, object)); err != nil {
		w.Failed(object, err)
		return err
	}
	return w.created(object)
}

func (w *Writer) created(object client.Object) error {
	if err := w.slim(object); err != nil {
		return err
	}
	w.Own.Created(w.owner, object, w.Now())
	return nil
}

// Delete deletes exactly this version of the object. It succeeds if the object is already gone.
func (w *Writer) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := w.answered(w.Now(), w.Client.Delete(ctx, object,
		append(options, client.Preconditions{UID: &uid, ResourceVersion: &version})...))
	if pod, ok := object.(*corev1.Pod); ok {
		err = w.Judged(ctx, pod, err)
	}
	if client.IgnoreNotFound(err) != nil {
		w.Failed(object, err)
		return err
	}
	w.Own.Deleted(w.owner, object, w.Now())
	return nil
}

// Patch sends a patch to the object, or to the named subresource, and returns the version that it left. The
// body must carry the guards, as those of [MergePatch] and podpatch do. A body that is a list of operations
// is sent as a JSON patch; other bodies are strategic merge patches for pods and merge patches for all other
// objects.
func Patch[T client.Object](
	ctx context.Context, w *Writer, object T, body []byte, subresource string,
) (T, error) {
	// Start from an empty object, so that no field stays that the answer leaves out.
	patched := reflect.New(reflect.TypeOf(object).Elem()).Interface().(T)
	patched.SetNamespace(object.GetNamespace())
	patched.SetName(object.GetName())
	// The Go type of a metadata-only object does not define its kind.
	patched.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())

	kind := types.MergePatchType
	if _, pod := any(object).(*corev1.Pod); body[0] == '[' {
		kind = types.JSONPatchType
	} else if pod {
		kind = types.StrategicMergePatchType
	}

	w.follow(ctx, object)

	begun, patch := w.Now(), client.RawPatch(kind, body)
	var err error
	if subresource == "" {
		err = w.Client.Patch(ctx, patched, patch)
	} else {
		err = w.Client.SubResource(subresource).Patch(ctx, patched, patch)
	}
	if err = w.answered(begun, err); err != nil {
		w.Failed(object, err)
		return *new(T), err
	}
	if err := w.slim(patched); err != nil {
		return *new(T), err
	}

	w.Own.Changed(w.owner, patched, w.Now())
	return patched, nil
}

// behind defines how a patch polls the caches while it waits for them: a quarter of a second in all.
var behind = wait.Backoff{Duration: time.Millisecond, Factor: 2, Steps: 9}

// follow waits a moment until the caches show the version that is to be patched, if the last own write left
// that version. An API server applies a patch to what its own cache shows, and does so again if that was
// stale. This is most of what a patch costs it: half of all updates in place were computed twice. When our
// caches show a version, so does the API server's.
func (w *Writer) follow(ctx context.Context, object client.Object) {
	own := w.Own.lookup(w.owner, object)
	if w.Limit == nil || own == nil || own.object.GetResourceVersion() != object.GetResourceVersion() {
		return
	}
	_ = wait.ExponentialBackoffWithContext(ctx, behind, func(ctx context.Context) (bool, error) {
		seen, err := w.Own.cached(ctx, object)
		return err == nil && seen != nil && !Older(seen, object), err
	}) // the patch is sent in any case
}

// Merge is [Patch] with a merge patch of metadata and of the rest of the object; each may be nil.
func Merge[T client.Object](
	ctx context.Context, w *Writer, object T, metadata, rest map[string]any, subresource string,
) (T, error) {
	body, err := MergePatch(object, metadata, rest)
	if err != nil {
		return *new(T), err
	}
	return Patch(ctx, w, object, body, subresource)
}

// Read reads an object from the API server. The next plan uses what it read, even if the caches are older; so it
// does if there is no such object.
func (w *Writer) Read(ctx context.Context, name types.NamespacedName, into client.Object) error {
	if err := w.Own.Live.Get(ctx, name, into); err != nil {
		if apierrors.IsNotFound(err) {
			into.SetNamespace(name.Namespace)
			into.SetName(name.Name)
			w.Own.remember(w.owner, &write{operation: gone, object: into, at: w.Now()})
		}
		return err
	}
	found, err := w.Own.found(ctx, into, w.Now())
	if err != nil {
		return err
	}
	w.Own.remember(w.owner, found)
	return nil
}

// MergePatch returns a JSON merge patch of an object, guarded by its UID and resourceVersion; metadata and
// rest may be nil. What they say of the guards, or rest of metadata, does not count.
func MergePatch(object metav1.Object, metadata, rest map[string]any) ([]byte, error) {
	guarded := maps.Clone(metadata)
	if guarded == nil {
		guarded = map[string]any{}
	}
	guarded["uid"], guarded["resourceVersion"] = object.GetUID(), object.GetResourceVersion()

	document := maps.Clone(rest)
	if document == nil {
		document = map[string]any{}
	}
	document["metadata"] = guarded

	body, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding patch: %w", err)
	}
	return body, nil
}
