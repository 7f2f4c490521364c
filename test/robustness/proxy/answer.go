package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
)

// answered notes what the API server answered to a write, before the answer reaches anybody.
func (p *Proxy) answered(response *http.Response) error {
	e, ok := response.Request.Context().Value(exchangeKey{}).(*exchange)
	if !ok || !isWrite(response.Request) {
		return nil
	}

	e.Status = response.StatusCode
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	if e.lease {
		p.mutex.Lock()
		p.renewed = time.Now()
		p.mutex.Unlock()
	}

	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	e.Revision = revision(body)

	return nil
}

// revision returns the resource version of the object in an answer, in JSON or in protobuf, or 0 if it has
// none.
func revision(body []byte) int64 {
	var object metav1.Object
	if bytes.HasPrefix(body, []byte("{")) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(body) != nil {
			return 0
		}
		object = u
	} else {
		decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return 0
		}
		if object, err = meta.Accessor(decoded); err != nil {
			return 0
		}
	}
	number, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return number
}
