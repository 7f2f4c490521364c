package resourcedistribution

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-openapi/jsonpointer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Name is the name of the kind.
const Name = "ResourceDistribution"

// Kinds that are distributed (RD-032).
const (
	Secret    = "Secret"
	ConfigMap = "ConfigMap"
)

// Annotations of copies (RD-053).
const (
	FromAnnotation = "kruise.io/resourcedistribution.resource.from"
	HashAnnotation = "kruise.io/resourcedistribution.resource.hashcode"
)

// Of is what all copies of a resource have in common.
type Of struct{ Kind, Name string }

// Object returns an empty object of the kind.
func (o Of) Object() Object {
	if o.Kind == Secret {
		return &corev1.Secret{}
	}
	return &corev1.ConfigMap{}
}

// Resource is what is distributed.
type Resource struct {
	Of
	// From is the name of the ResourceDistribution, and Hash the digest of spec.resource.
	From, Hash string
	// Content is the digest of the content, and Type the type of a Secret.
	Content Digest
	Type    corev1.SecretType

	metadata metadata
	document map[string]any
	// content are the members that an update writes. Members that the resource lacks are null.
	content map[string]any
	pairs   []uint64
}

// metadata is the part of the resource's metadata that a copy gets.
type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Finalizers  []string          `json:"finalizers"`
}

// header is what is read before the kind is known.
type header struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metadata `json:"metadata"`
}

var errKind = errors.New("must be a Secret or a ConfigMap of apiVersion v1")

// read parses the header of a resource.
func read(raw []byte) (h header, err error) {
	if len(raw) == 0 || string(raw) == "null" || string(raw) == "{}" {
		return h, errors.New("must not be empty")
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &h); err != nil {
		return h, fmt.Errorf("must be an object: %s", fault(err))
	}

	switch {
	case h.APIVersion == "" || h.Kind == "":
		return h, errors.New("must have apiVersion and kind")
	case h.APIVersion != "v1" || h.Kind != Secret && h.Kind != ConfigMap:
		return h, errKind
	case h.Metadata.Name == "":
		return h, errors.New("must have metadata.name")
	}

	return h, nil
}

// fault describes what is wrong with a document without its values, which may be secret.
func fault(err error) string {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		return fmt.Sprintf("field %s cannot be a %s", mistyped.Field, mistyped.Value)
	}

	var encoded base64.CorruptInputError
	if errors.As(err, &encoded) {
		return "data is not base64"
	}

	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return "it is not JSON"
	}

	return "it cannot be decoded"
}

// Read returns what a ResourceDistribution distributes (RD-053).
func Read(distribution *appsv1beta1.ResourceDistribution) (*Resource, error) {
	raw := distribution.Spec.Resource.Raw
	h, err := read(raw)
	if err != nil {
		return nil, fmt.Errorf("spec.resource %w", err)
	}

	object := Of{Kind: h.Kind}.Object()
	r := &Resource{Of: Of{h.Kind, h.Metadata.Name}, From: distribution.Name, metadata: h.Metadata,
		content: map[string]any{}}
	if err := errors.Join(kjson.UnmarshalCaseSensitivePreserveInts(raw, object),
		kjson.UnmarshalCaseSensitivePreserveInts(raw, &r.document)); err != nil {
		return nil, fmt.Errorf("spec.resource must be a %s: %s", h.Kind, fault(err))
	}

	hash := sha256.Sum256(raw)
	r.Hash = hex.EncodeToString(hash[:])
	r.metadata.Annotations = maps.Clone(h.Metadata.Annotations)
	if r.metadata.Annotations == nil {
		r.metadata.Annotations = map[string]string{}
	}
	r.metadata.Annotations[FromAnnotation], r.metadata.Annotations[HashAnnotation] = distribution.Name, r.Hash

	// The annotation with the name of the ResourceDistribution is not compared, since changing it does no
	// harm.
	looked := maps.Clone(r.metadata.Annotations)
	delete(looked, FromAnnotation)
	r.pairs = pairs(r.metadata.Labels, looked)
	r.Content = ContentOf(object)

	switch object := object.(type) {
	case *corev1.Secret:
		r.Type = typeOf(object)
		r.content["data"], r.content["immutable"] = merged(object), object.Immutable
	case *corev1.ConfigMap:
		r.content["data"], r.content["binaryData"], r.content["immutable"] = object.Data, object.BinaryData,
			object.Immutable
	}

	return r, nil
}

// Slim returns the resource without its content, which decisions do not need.
func (r *Resource) Slim() *Resource {
	slim := *r
	slim.document, slim.content = nil, nil
	return &slim
}

// typeOf returns the type of a Secret.
func typeOf(secret *corev1.Secret) corev1.SecretType {
	if secret.Type == "" {
		return corev1.SecretTypeOpaque
	}
	return secret.Type
}

// merged returns the data of a Secret as the API server stores them.
func merged(secret *corev1.Secret) map[string][]byte {
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range secret.StringData {
		data[key] = []byte(value)
	}
	return data
}

// Owner returns the owner reference of a copy (RD-053).
func Owner(distribution *appsv1beta1.ResourceDistribution) metav1.OwnerReference {
	return *metav1.NewControllerRef(distribution, appsv1beta1.GroupVersion.WithKind(Name))
}

// Document returns the copy for a namespace (RD-053).
func (r *Resource) Document(namespace string, owner metav1.OwnerReference) map[string]any {
	document := maps.Clone(r.document)
	meta := map[string]any{"name": r.Name, "namespace": namespace,
		"annotations": anyValues(r.metadata.Annotations),
		"ownerReferences": []any{map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind,
			"name": owner.Name, "uid": string(owner.UID), "controller": true,
			"blockOwnerDeletion": true}}}
	if len(r.metadata.Labels) > 0 {
		meta["labels"] = anyValues(r.metadata.Labels)
	}
	if len(r.metadata.Finalizers) > 0 {
		finalizers := make([]any, len(r.metadata.Finalizers))
		for i, finalizer := range r.metadata.Finalizers {
			finalizers[i] = finalizer
		}
		meta["finalizers"] = finalizers
	}
	document["metadata"] = meta
	return document
}

func anyValues(of map[string]string) map[string]any {
	values := make(map[string]any, len(of))
	for key, value := range of {
		values[key] = value
	}
	return values
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch returns the JSON patch that updates exactly this version of a copy (RD-054, RD-057). It replaces the
// content as a whole.
func (r *Resource) Patch(of *Copy) ([]byte, error) {
	operations := []operation{{"replace", "/metadata/uid", of.UID},
		{"replace", "/metadata/resourceVersion", of.Version}}
	add := func(member string, there bool, given map[string]string) {
		if len(given) == 0 {
			return
		}
		if !there {
			operations = append(operations, operation{"add", "/metadata/" + member, given})
			return
		}
		for _, key := range slices.Sorted(maps.Keys(given)) {
			operations = append(operations,
				operation{"add", "/metadata/" + member + "/" + jsonpointer.Escape(key), given[key]})
		}
	}

	add("labels", of.Labels, r.metadata.Labels)
	add("annotations", of.Annotations, r.metadata.Annotations)

	if len(of.Finalizers) == 0 && len(r.metadata.Finalizers) > 0 {
		operations = append(operations, operation{"add", "/metadata/finalizers", r.metadata.Finalizers})
	} else {
		for _, finalizer := range r.metadata.Finalizers {
			if _, there := slices.BinarySearch(of.pairs, digestOf("f/"+finalizer)); !there {
				operations = append(operations, operation{"add", "/metadata/finalizers/-", finalizer})
			}
		}
	}

	if of.Content != r.Content {
		for _, member := range slices.Sorted(maps.Keys(r.content)) {
			operations = append(operations, operation{"add", "/" + member, r.content[member]})
		}
	}

	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of a copy: %w", err)
	}

	return body, nil
}
