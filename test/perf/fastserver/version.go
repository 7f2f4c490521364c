package fastserver

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// object is what is stored: a built-in type, or a document.
type object = ctrlclient.Object

// form is how an object is sent: as JSON or protobuf, whole or its metadata alone.
type form struct{ protobuf, partial bool }

// slot numbers the forms.
func (f form) slot() int {
	n := 0
	if f.protobuf {
		n |= 1
	}
	if f.partial {
		n |= 2
	}
	return n
}

func (f form) contentType() string {
	if f.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// version is one immutable version of an object. Each of its forms is encoded once, when it is first needed,
// and the bytes are used for answers and for all watches.
type version struct {
	object
	number uint64
	key    string
	forms  [4]struct {
		once  sync.Once
		bytes []byte
		err   error
		// frames are the encoded events of watches.
		frames map[watch.EventType][]byte
		mu     sync.Mutex
	}
}

var partialKind = schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"}

var toProtobuf = protobuf.NewSerializer(scheme, scheme)

// metadataOf returns the metadata of an object alone.
func metadataOf(o object) *metav1.PartialObjectMetadata {
	p := meta.AsPartialObjectMetadata(o)
	p.SetGroupVersionKind(partialKind)
	return p
}

func encode(o runtime.Object, f form) ([]byte, error) {
	if !f.protobuf {
		if document, ok := o.(*unstructured.Unstructured); ok {
			return json.Marshal(document.Object)
		}
		return json.Marshal(o)
	}
	var b bytes.Buffer
	err := toProtobuf.Encode(o, &b)
	return b.Bytes(), err
}

// bytes encodes the version, once.
func (v *version) bytes(f form) ([]byte, error) {
	slot := &v.forms[f.slot()]
	slot.once.Do(func() {
		o := runtime.Object(v.object)
		if f.partial {
			o = metadataOf(v.object)
		}
		slot.bytes, slot.err = encode(o, f)
	})
	return slot.bytes, slot.err
}

// frame returns the version as an event of a watch, encoded once for each type of event.
func (v *version) frame(event watch.EventType, f form) ([]byte, error) {
	encoded, err := v.bytes(f)
	if err != nil {
		return nil, err
	}
	slot := &v.forms[f.slot()]
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if b, ok := slot.frames[event]; ok {
		return b, nil
	}
	b, err := frame(event, encoded, f)
	if err == nil {
		if slot.frames == nil {
			slot.frames = map[watch.EventType][]byte{}
		}
		slot.frames[event] = b
	}
	return b, err
}

// frame returns an encoded object in the form in which a watch sends it.
func frame(event watch.EventType, encoded []byte, f form) ([]byte, error) {
	if !f.protobuf {
		return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", event, bytes.TrimSpace(encoded)), nil
	}
	message := metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: encoded}}
	b := make([]byte, 4+message.Size())
	binary.BigEndian.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // objects are small
	_, err := message.MarshalToSizedBuffer(b[4:])
	return b, err
}
