package fastserver

import (
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/afloat-project/afloat/internal/memcluster/httpserver"
)

// selected returns a function that tells whether a list or watch selects a version.
func (q *request) selected() (func(*version) bool, error) {
	selector, err := httpserver.ParseSelector(q.URL.Query())
	if err != nil {
		return nil, err
	}
	for _, r := range selector.Fields.Requirements() {
		switch r.Field {
		case "metadata.name", "metadata.namespace", "spec.nodeName":
		default:
			return nil, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	return func(v *version) bool {
		if q.namespace != "" && v.GetNamespace() != q.namespace || q.name != "" && v.GetName() != q.name {
			return false
		}
		return selector.Matches(v, func(path string) string {
			switch path {
			case "metadata.name":
				return v.GetName()
			case "metadata.namespace":
				return v.GetNamespace()
			}
			if pod, ok := v.object.(*corev1.Pod); ok {
				return pod.Spec.NodeName
			}
			return ""
		})
	}, nil
}

// watch sends events until the client closes the connection or the timeout is over.
func (q *request) watch(w http.ResponseWriter) {
	query := q.URL.Query()
	if query.Get("sendInitialEvents") != "" { // not supported: clients fall back to a list
		answer{}.send(w, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil))
		return
	}
	chosen, err := q.selected()
	if err != nil {
		answer{}.send(w, err)
		return
	}
	var end <-chan time.Time
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		end = timer.C
	}
	media := runtime.ContentTypeJSON
	if q.form.protobuf {
		media = runtime.ContentTypeProtobuf + ";stream=watch"
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(http.StatusOK)
	stream := &stream{w: w, control: http.NewResponseController(w), form: q.form, chosen: chosen}
	position, err := q.begin(stream, query.Get("resourceVersion"))
	if err != nil {
		stream.fail(err)
		return
	}
	for {
		events, more, ok := q.resource.since(position)
		if !ok {
			stream.fail(apierrors.NewResourceExpired("too old resource version"))
			return
		}
		position += len(events)
		if stream.send(events) != nil {
			return
		}
		select {
		case <-more:
		case <-q.Context().Done():
			return
		case <-end:
			return
		}
	}
}

// begin returns where a watch begins: after a version, or with all present objects.
func (q *request) begin(s *stream, from string) (int, error) {
	if from == "" || from == "0" {
		all, _, position := q.resource.list(s.chosen)
		var events []event
		for _, v := range all {
			events = append(events, event{kind: watch.Added, now: v})
		}
		return position, s.send(events)
	}
	number, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest("invalid resource version " + from)
	}
	position, ok := q.resource.after(number)
	if !ok {
		return 0, apierrors.NewResourceExpired("too old resource version: " + from)
	}
	return position, nil
}

// stream is the answer to a watch.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	form    form
	chosen  func(*version) bool
}

// send writes the events that the client asked for.
func (s *stream) send(events []event) error {
	for _, e := range events {
		kind := httpserver.EventType(e.before != nil && s.chosen(e.before), e.kind != watch.Deleted && s.chosen(e.now))
		if kind == "" {
			continue
		}
		b, err := e.now.frame(kind, s.form)
		if err != nil {
			return err
		}
		if _, err := s.w.Write(b); err != nil {
			return err
		}
	}
	return s.control.Flush()
}

func (s *stream) fail(err error) {
	encoded, err := encode(httpserver.StatusOf(err), s.form)
	if err != nil {
		return
	}
	if b, err := frame(watch.Error, encoded, s.form); err == nil {
		_, _ = s.w.Write(b)
		_ = s.control.Flush()
	}
}
