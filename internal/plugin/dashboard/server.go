package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/platform/version"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/registry"
)

// mostStreams bounds the pages that are open at the same time, and mostBody the bytes of a request.
const (
	mostStreams = 32
	mostBody    = 3 << 20
)

// server answers the requests of the page with the user's rights.
type server struct {
	factory   cmdutil.Factory
	reader    *explain.Reader
	mapper    meta.RESTMapper
	dynamic   dynamic.Interface
	clients   *kubernetes.Clientset
	host      string
	cluster   string
	namespace string
	user      string
	streams   chan struct{}
}

func newServer(ctx context.Context, f cmdutil.Factory, managerNamespace string) (*server, error) {
	s := &server{factory: f, streams: make(chan struct{}, mostStreams)}

	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100 // a person looks at several workloads, and each plan reads about ten lists
	if s.mapper, err = f.ToRESTMapper(); err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}
	if s.reader, err = explain.NewReader(config, s.mapper, managerNamespace); err != nil {
		return nil, err
	}
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if s.clients, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}

	loader := f.ToRawKubeConfigLoader()
	if s.namespace, _, err = loader.Namespace(); err != nil {
		return nil, err //nolint:wrapcheck // kubectl's words
	}
	if raw, err := loader.RawConfig(); err == nil {
		s.cluster = raw.CurrentContext
	}
	s.host = config.Host

	// Servers before 1.28 do not tell; the page then shows no name.
	review, err := s.clients.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil {
		s.user = review.Status.UserInfo.Username
	}
	return s, nil
}

// routes returns the handler of the requests below /api/.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /api/session", answering(s.session))
	mux.Handle("GET /api/overview", http.HandlerFunc(s.overview))
	mux.Handle("GET /api/workload", http.HandlerFunc(s.workload))
	mux.Handle("GET /api/revisions", answering(s.revisions))
	mux.Handle("GET /api/document", answering(s.document))
	mux.Handle("POST /api/plan", answering(s.plan))
	mux.Handle("POST /api/apply", answering(s.apply))
	return mux
}

// failure is an error with the status of the answer.
type failure struct {
	status int
	error
}

func failed(status int, format string, args ...any) error {
	return failure{status, fmt.Errorf(format, args...)}
}

// statusOf returns the status of the answer to a request that failed.
func statusOf(err error) int {
	var of failure
	var api apierrors.APIStatus
	switch {
	case errors.As(err, &of):
		return of.status
	case errors.As(err, &api) && api.Status().Code >= http.StatusBadRequest:
		return int(api.Status().Code)
	}
	return http.StatusInternalServerError
}

// answering returns a handler that answers with what a function returns.
func answering(do func(r *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
			refuse(w, http.StatusUnsupportedMediaType, "the body must be application/json")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)

		answer, err := do(r)
		if err != nil {
			refuseFor(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// refuseFor answers to a request that failed.
func refuseFor(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status == http.StatusUnauthorized { // that of the cluster; the page's own means that its token is wrong
		status = http.StatusBadGateway
	}
	refuse(w, status, "%v", err)
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": fmt.Sprintf(format, args...)})
}

// shown reports whether the page shows objects of a kind: those with pods of their own, and those that plans are
// made for.
func shown(kind schema.GroupKind) bool {
	for i := range registry.Kinds {
		k := &registry.Kinds[i]
		if k.Group == kind.Group && k.Name == kind.Kind {
			return k.Rehearse != nil || workloadkind.Of(kind).Version != ""
		}
	}
	return false
}

// object is an object that a request names.
type object struct {
	types.NamespacedName
	mapping *meta.RESTMapping
}

func (o *object) kind() schema.GroupKind { return o.mapping.GroupVersionKind.GroupKind() }

func (o *object) namespaced() bool { return o.mapping.Scope.Name() == meta.RESTScopeNameNamespace }

// resource returns the name of the resource with its group, such as clonesets.apps.kruise.io.
func (o *object) resource() string { return o.mapping.Resource.GroupResource().String() }

// named returns the object that the parameters of a request name.
func (s *server) named(resource, namespace, name string) (*object, error) {
	kind, err := s.mapper.KindFor(schema.ParseGroupResource(resource).WithVersion(""))
	if err != nil {
		return nil, failed(http.StatusBadRequest, "the resource %q: %w", resource, err)
	}
	if name == "" || strings.Contains(name, "/") {
		return nil, failed(http.StatusBadRequest, "the name %q is none of an object", name)
	}
	one, err := s.object(kind.GroupKind(), types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return nil, failure{http.StatusBadRequest, err}
	}
	if one.namespaced() && namespace == "" {
		return nil, failed(http.StatusBadRequest, "the namespace of %s is missing", name)
	}
	return one, nil
}

// asked returns the object that the query of a request names.
func (s *server) asked(r *http.Request) (*object, error) {
	q := r.URL.Query()
	return s.named(q.Get("resource"), q.Get("namespace"), q.Get("name"))
}

// get reads an object.
func (s *server) get(ctx context.Context, o *object) (*unstructured.Unstructured, error) {
	return s.dynamic.Resource(o.mapping.Resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
}

// kindShown is a kind that the page shows and the API server serves.
type kindShown struct {
	Kind       string `json:"kind"`
	Resource   string `json:"resource"`
	Namespaced bool   `json:"namespaced"`

	mapping *meta.RESTMapping
}

// kinds returns the kinds that the page shows and the API server serves.
func (s *server) kinds() (all []kindShown) {
	for i := range registry.Kinds {
		kind := schema.GroupKind{Group: registry.Kinds[i].Group, Kind: registry.Kinds[i].Name}
		if !shown(kind) {
			continue
		}
		if o, err := s.object(kind, types.NamespacedName{}); err == nil {
			all = append(all, kindShown{kind.Kind, o.resource(), o.namespaced(), o.mapping})
		}
	}
	slices.SortFunc(all, func(a, b kindShown) int { return strings.Compare(a.Kind, b.Kind) })
	return all
}

// session says who looks at which cluster.
func (s *server) session(r *http.Request) (any, error) {
	namespaces := []string{}
	list, err := s.clients.CoreV1().Namespaces().List(r.Context(), metav1.ListOptions{Limit: 2000})
	if err == nil {
		for i := range list.Items {
			namespaces = append(namespaces, list.Items[i].Name)
		}
	}

	return map[string]any{
		"user":       s.user,
		"context":    s.cluster,
		"server":     s.host,
		"namespace":  s.namespace,
		"version":    version.Get().Version,
		"namespaces": namespaces,
		"kinds":      append([]kindShown{}, s.kinds()...),
	}, nil
}
