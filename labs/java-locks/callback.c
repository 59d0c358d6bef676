/* A driver in native code that calls its user back, as many do. */
#include <jni.h>

JNIEXPORT void JNICALL Java_JavaLocks_callBack(JNIEnv *env, jclass class, jobject booking) {
    (void)class;
    jmethodID book = (*env)->GetMethodID(env, (*env)->GetObjectClass(env, booking), "book", "()V");
    (*env)->CallVoidMethod(env, booking, book);
}
