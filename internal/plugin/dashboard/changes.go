package dashboard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/plugin/change"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/commands/rollout"
	"github.com/afloat-project/afloat/internal/plugin/workload"
)

// request asks for a plan of a change, or for the change itself.
type request struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Change    wanted `json:"change"`
	// Generation is the one that the plan was made for. A change is refused if the spec has another one.
	Generation int64 `json:"generation"`

	to int64 // the number of the revision that an undo goes back to
}

// wanted is a change that the user wants.
type wanted struct {
	Action     string            `json:"action"`
	InPlace    bool              `json:"inPlace"`
	ToRevision int64             `json:"toRevision"`
	Replicas   *int64            `json:"replicas"`
	Images     map[string]string `json:"images"`
	YAML       string            `json:"yaml"`
}

// edit returns the function that makes the change in a document. revision is the one to go back to.
func (c *wanted) edit(revision *rollout.Revision, now time.Time) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		switch c.Action {
		case "pause", "resume":
			return rollout.SetPaused(o, c.Action == "pause")
		case "restart":
			return rollout.Restart(o, now, c.InPlace)
		case "undo":
			return rollout.Restore(o, revision)
		case "scale":
			if c.Replicas == nil || *c.Replicas < 0 {
				return failed(http.StatusBadRequest, "replicas must be a number that is not negative")
			}
			return unstructured.SetNestedField(o.Object, *c.Replicas, "spec", "replicas")
		case "images":
			return c.setImages(o)
		case "yaml":
			return c.setSpec(o)
		}
		return failed(http.StatusBadRequest, "the action %q is none of this page", c.Action)
	}
}

// setImages sets the images of containers. A name that no container has is an error.
func (c *wanted) setImages(o *unstructured.Unstructured) error {
	found, err := workload.Containers(o)
	if err != nil {
		return failure{http.StatusBadRequest, err}
	}
	left := map[string]bool{}
	for name := range c.Images {
		left[name] = true
	}
	for _, one := range found {
		if image, ok := c.Images[one.Name()]; ok {
			one.Fields["image"] = image
			delete(left, one.Name())
		}
	}
	for name := range left {
		return failed(http.StatusBadRequest, "there is no container %q", name)
	}
	return nil
}

// setSpec replaces the spec with that of a document about the same object.
func (c *wanted) setSpec(o *unstructured.Unstructured) error {
	document := map[string]any{}
	raw, err := yaml.YAMLToJSONStrict([]byte(c.YAML))
	if err == nil {
		err = json.Unmarshal(raw, &document)
	}
	if err != nil {
		return failed(http.StatusBadRequest, "the YAML: %w", err)
	}
	// What would be dropped is refused, so that nobody takes it for applied.
	for field := range document {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec"}, field) {
			return failed(http.StatusBadRequest, "only the spec is changed here, and %q is beside it", field)
		}
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(c.YAML)))
	for n := 0; ; {
		one, err := documents.Read()
		if err != nil {
			break // there are no more
		}
		if len(bytes.TrimSpace(one)) > 0 {
			n++
		}
		if n > 1 {
			return failed(http.StatusBadRequest, "the YAML has several documents, and one is changed here")
		}
	}

	edited := &unstructured.Unstructured{}
	// Numbers are read as clients read them, so that what was not edited is equal.
	if err := edited.UnmarshalJSON(raw); err != nil {
		return failed(http.StatusBadRequest, "the YAML: %w", err)
	}
	if !equality.Semantic.DeepEqual(edited.Object["metadata"], documentOf(o).Object["metadata"]) ||
		edited.GroupVersionKind() != o.GroupVersionKind() {
		return failed(http.StatusBadRequest, "only the spec is changed here: leave the kind and the metadata as they are")
	}
	spec, ok := edited.Object["spec"].(map[string]any)
	if !ok {
		return failed(http.StatusBadRequest, "the spec is missing")
	}
	o.Object["spec"] = spec
	return nil
}

// documentOf returns the part of a document that the page lets people edit.
func documentOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	shown := &unstructured.Unstructured{Object: map[string]any{"spec": o.Object["spec"]}}
	shown.SetGroupVersionKind(o.GroupVersionKind())
	shown.SetName(o.GetName())
	if o.GetNamespace() != "" {
		shown.SetNamespace(o.GetNamespace())
	}
	return shown
}

// text returns a value as YAML.
func text(value any) string {
	encoded, err := json.Marshal(value)
	if err == nil {
		encoded, err = yaml.JSONToYAML(escaped(encoded))
	}
	if err != nil {
		return fmt.Sprintf("# it cannot be shown: %v\n", err)
	}
	return string(encoded)
}

// escaped returns JSON in which characters that YAML allows only as escapes are such. A text that holds one could
// not be shown otherwise, nor what differs between two of them.
func escaped(encoded []byte) []byte {
	var safe bytes.Buffer
	for _, r := range string(encoded) {
		if r >= 0x7f && r <= 0x9f || r == 0xfeff || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&safe, "\\u%04x", r)
		} else {
			safe.WriteRune(r)
		}
	}
	return safe.Bytes()
}

// revisioned reports whether workloads of a kind keep revisions with pod templates.
func revisioned(kind schema.GroupKind) bool {
	return slices.Contains([]schema.GroupKind{
		workloadkind.CloneSet, workloadkind.AdvancedStatefulSet, workloadkind.AdvancedDaemonSet,
	}, kind)
}

// document answers with the document that the user may edit.
func (s *server) document(r *http.Request) (any, error) {
	one, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	o, err := s.get(r.Context(), one)
	if err != nil {
		return nil, err
	}
	return map[string]any{"yaml": text(documentOf(o).Object), "generation": o.GetGeneration()}, nil
}

// revisionShown is what the page shows of a revision.
type revisionShown struct {
	Number   int64     `json:"number"`
	Name     string    `json:"name"`
	Created  time.Time `json:"created"`
	Cause    string    `json:"cause"`
	Update   bool      `json:"update"`
	Current  bool      `json:"current"`
	Template string    `json:"template"`
}

// revisions answers with the revisions of a workload, from the newest to the oldest.
func (s *server) revisions(r *http.Request) (any, error) {
	one, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	shown := []revisionShown{}
	if !revisioned(one.kind()) {
		return map[string]any{"revisions": shown}, nil
	}

	o, err := s.get(r.Context(), one)
	if err != nil {
		return nil, err
	}
	all, err := rollout.RevisionsOf(r.Context(), s.factory, o)
	if err != nil {
		return nil, err
	}

	current, _, _ := unstructured.NestedString(o.Object, "status", "currentRevision")
	for _, revision := range slices.Backward(all) {
		name := revision.Stored.GetName()
		shown = append(shown, revisionShown{
			Number:   revision.Number,
			Name:     name,
			Created:  revision.Stored.GetCreationTimestamp().Time,
			Cause:    revision.Cause(),
			Update:   sameRevision(name, updateRevision(o)),
			Current:  sameRevision(name, current),
			Template: text(revision.Template),
		})
	}
	return map[string]any{"revisions": shown}, nil
}

// read decodes a request, and reads the object that it is about.
func (s *server) read(r *http.Request) (*request, *resource.Info, func(*unstructured.Unstructured) error, error) {
	q := &request{}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(q); err != nil {
		return nil, nil, nil, failed(http.StatusBadRequest, "the request: %w", err)
	}
	one, err := s.named(q.Resource, q.Namespace, q.Name)
	if err != nil {
		return nil, nil, nil, err
	}

	client, err := s.factory.UnstructuredClientForMapping(one.mapping)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("making a client: %w", err)
	}
	info := &resource.Info{Client: client, Mapping: one.mapping, Namespace: one.Namespace, Name: one.Name}
	if err := info.Get(); err != nil {
		return nil, nil, nil, err //nolint:wrapcheck // the API server names the object
	}

	var revision *rollout.Revision
	if q.Change.Action == "undo" {
		if !revisioned(one.kind()) {
			return nil, nil, nil, failed(http.StatusBadRequest, "a %s has no revisions to go back to", one.kind().Kind)
		}
		document, err := change.Document(info)
		if err != nil {
			return nil, nil, nil, err
		}
		revision, err = rollout.UndoTarget(r.Context(), s.factory, document, q.Change.ToRevision)
		if err != nil && statusOf(err) == http.StatusInternalServerError { // there is no such revision
			err = failure{http.StatusConflict, err}
		}
		if err != nil {
			return nil, nil, nil, err
		}
		q.to = revision.Number
	}
	return q, info, q.Change.edit(revision, time.Now()), nil
}

// plan answers with what would become of the pods. The API server plays the change as a dry run, with all its
// admission, and the planner plays the rollout that follows.
func (s *server) plan(r *http.Request) (any, error) {
	q, info, edit, err := s.read(r)
	if err != nil {
		return nil, err
	}
	before, err := change.Document(info)
	if err != nil {
		return nil, err
	}
	before = before.DeepCopy()

	if _, err := change.Apply(r.Context(), info, change.Options{DryRun: cmdutil.DryRunServer}, edit); err != nil {
		return nil, refused(err)
	}
	after, err := change.Document(info)
	if err != nil {
		return nil, err
	}

	answer := map[string]any{
		"before":     text(documentOf(before).Object),
		"after":      text(documentOf(after).Object),
		"generation": before.GetGeneration(),
		"previews":   []previewShown{},
	}
	if q.to != 0 {
		answer["toRevision"] = q.to
	}
	kind := explain.KindOf(workload.Kind(after))
	if kind == nil {
		answer["note"] = fmt.Sprintf("no plans are made for a %s: what becomes of its pods is not known", after.GetKind())
		return answer, nil
	}

	typed, err := explain.Typed(kind, after)
	if err != nil {
		return nil, err
	}
	found, err := s.reader.Preview(r.Context(), kind.Name, typed, nil)
	if err != nil {
		return nil, err
	}
	answer["previews"] = []previewShown{preview(found)}
	return answer, nil
}

// apply makes a change, unless the spec was changed since the plan was made.
func (s *server) apply(r *http.Request) (any, error) {
	q, info, edit, err := s.read(r)
	if err != nil {
		return nil, err
	}
	if q.to != 0 && q.Change.ToRevision == 0 {
		// Which one is the one before may change without the spec.
		return nil, failed(http.StatusBadRequest, "the change must name the revision that its plan goes back to")
	}
	guarded := func(o *unstructured.Unstructured) error {
		if o.GetGeneration() != q.Generation {
			return failed(http.StatusConflict,
				"%s was changed since the plan was made: look at the plan again", o.GetName())
		}
		return edit(o)
	}
	if _, err := change.Apply(r.Context(), info, change.Options{}, guarded); err != nil {
		return nil, refused(err)
	}
	document, err := change.Document(info)
	if err != nil {
		return nil, err
	}
	return map[string]any{"generation": document.GetGeneration()}, nil
}

// refused returns an error of a change. What is neither an answer of the API server nor a failure of this page is
// a rule of the change, such as that a workload is paused already.
func refused(err error) error {
	if status := statusOf(err); status != http.StatusInternalServerError {
		return err
	}
	return failure{http.StatusUnprocessableEntity, err}
}
